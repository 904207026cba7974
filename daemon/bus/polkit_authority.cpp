#include "bus/polkit_authority.hpp"

#include <algorithm>
#include <optional>

#include "base/log.hpp"
#include "bus/errors.hpp"

namespace perceptd::bus {
namespace {

using session::Peer;
using session::Verdict;

constexpr const char* kPolkit = "org.freedesktop.PolicyKit1";
constexpr const char* kPolkitPath = "/org/freedesktop/PolicyKit1/Authority";
constexpr const char* kAuthority = "org.freedesktop.PolicyKit1.Authority";
constexpr std::uint32_t kAllowInteraction = 1;
constexpr std::size_t kQuestionsMax = 256;

using Details = std::map<std::string, std::string>;
using Subject = sdbus::Struct<std::string, std::map<std::string, sdbus::Variant>>;
using Answer = sdbus::Struct<bool, bool, Details>;  // is authorised, authentication would help, details

bool is_known(const std::string& action) {
    static constexpr const char* kActions[] = {"org.perceptd1.use-camera", "org.perceptd1.use-microphone",
                                               "org.perceptd1.use-imu", "org.perceptd1.infer", "org.perceptd1.manage"};
    return std::find(std::begin(kActions), std::end(kActions), action) != std::end(kActions);
}

bool can_be_named(const Peer& peer) noexcept {
    return !peer.bus_name.empty() || (peer.pid > 0 && peer.start_time_ticks != 0);
}

std::string key_of(const Peer& peer) {
    return peer.bus_name.empty() ? std::to_string(peer.pid) + "/" + std::to_string(peer.start_time_ticks)
                                 : peer.bus_name;
}

/// A process is named with its start time and user, so that another one under the same number is not it.
Subject subject_of(const Peer& peer) {
    std::map<std::string, sdbus::Variant> details;
    if (!peer.bus_name.empty()) {
        details.emplace("name", peer.bus_name);
        return Subject("system-bus-name", details);
    }
    details.emplace("pid", static_cast<std::uint32_t>(peer.pid));
    details.emplace("start-time", peer.start_time_ticks);
    details.emplace("uid", static_cast<std::int32_t>(peer.uid));
    return Subject("unix-process", details);
}

/// Empty when polkit's answer is not what its interface promises.
std::optional<Answer> read_answer(sdbus::MethodReply& reply) {
    std::string type;
    std::string contents;
    reply.peekType(type, contents);
    if (type != "r" || contents != "bba{ss}") {
        return std::nullopt;
    }
    Answer answer;
    reply >> answer;
    return answer;
}

}  // namespace

PolkitAuthority::PolkitAuthority(Connection& connection, Options options)
    : connection_(connection),
      options_(options),
      polkit_(sdbus::createProxy(connection.native(), kPolkit, kPolkitPath)) {
    polkit_->registerSignalHandler(kAuthority, "Changed",
                                   [this](sdbus::Signal&) { guard_event("polkit's change", [this] { changed(); }); });
    polkit_->finishRegistration();
}

void PolkitAuthority::authorize(const Peer& subject, const std::vector<std::string>& actions, Callback callback) {
    begin(subject, actions, Asking::Quietly, std::move(callback));
}

void PolkitAuthority::recheck(const Peer& subject, const std::vector<std::string>& actions, Callback callback) {
    begin(subject, actions, Asking::Again, std::move(callback));
}

void PolkitAuthority::begin(const Peer& subject, const std::vector<std::string>& actions, Asking asking,
                            Callback callback) {
    const auto unknown =
        std::find_if(actions.begin(), actions.end(), [](const std::string& action) { return !is_known(action); });
    if (unknown != actions.end()) {
        callback(Verdict::Denied, *unknown);
        return;
    }
    if (actions.empty()) {
        callback(Verdict::Granted, {});
        return;
    }
    if (!can_be_named(subject)) {
        log::warning("bus", "a client of user " + std::to_string(subject.uid) +
                                " is denied: its process is in another namespace or has ended");
        callback(Verdict::Denied, actions.front());
        return;
    }
    if (is_lost_ || !connection_.is_open() || questions_.size() >= kQuestionsMax) {
        callback(Verdict::Unavailable, actions.front());
        return;
    }
    const std::uint64_t id = next_id_++;
    questions_.emplace(id, Question{subject, actions, 0, asking, false, std::move(callback)});
    ask(id);
}

void PolkitAuthority::ask(std::uint64_t id) {
    const Question& question = questions_.at(id);
    const bool dialogue = question.asking == Asking::WithDialogue;
    const std::int64_t limit_ns = dialogue ? options_.dialogue_ns : options_.answer_ns;
    try {
        sdbus::MethodCall call = polkit_->createMethodCall(kAuthority, "CheckAuthorization");
        call << subject_of(question.subject) << question.actions[question.next] << Details{}
             << (dialogue ? kAllowInteraction : std::uint32_t{0}) << std::to_string(id);
        polkit_->callMethod(
            call,
            [this, id](sdbus::MethodReply& reply, const sdbus::Error* error) {
                guard_event("polkit's answer", [&] { answered(id, reply, error); });
            },
            static_cast<std::uint64_t>(limit_ns / kNsPerUs));
    } catch (const sdbus::Error& error) {
        log::error("bus", "polkit cannot be asked, so nothing is granted: " + error.getMessage());
        settle(id, Verdict::Unavailable);
    }
}

void PolkitAuthority::answered(std::uint64_t id, sdbus::MethodReply& reply, const sdbus::Error* error) {
    const auto found = questions_.find(id);
    if (found == questions_.end()) {
        return;
    }
    Question& question = found->second;
    std::optional<Answer> answer;
    if (error != nullptr) {
        log::error("bus", "no answer from polkit, so nothing is granted: " + error->getMessage());
        if (question.asking == Asking::WithDialogue) {  // the dialogue must not outlive the question
            guard_event("ending a dialogue", [&] {
                sdbus::MethodCall cancel = polkit_->createMethodCall(kAuthority, "CancelCheckAuthorization");
                cancel << std::to_string(id);
                cancel.dontExpectReply();
                static_cast<void>(polkit_->callMethod(cancel, std::uint64_t{0}));
            });
        }
    } else {
        guard_event("reading polkit's answer", [&] { answer = read_answer(reply); });
    }
    if (!answer) {
        settle(id, Verdict::Unavailable);
        return;
    }
    Grant grant{key_of(question.subject), question.actions[question.next]};
    const bool is_authorized = answer->get<0>();
    const bool is_challenge = answer->get<1>();
    if (!is_authorized && is_challenge && question.asking == Asking::Quietly) {
        question.asking = Asking::WithDialogue;
        ask(id);
        return;
    }
    const bool holds = question.asking == Asking::Again && is_challenge && authenticated_.count(grant) != 0;
    if (!is_authorized && !holds) {
        settle(id, Verdict::Denied);
        return;
    }
    if (question.asking == Asking::WithDialogue) {
        authenticated_.insert(std::move(grant));
        question.asking = Asking::Quietly;
    }
    question.next = std::exchange(question.is_stale, false) ? 0 : question.next + 1;
    if (question.next < question.actions.size()) {
        ask(id);
        return;
    }
    settle(id, Verdict::Granted);
}

void PolkitAuthority::changed() {
    for (auto& [id, question] : questions_) {
        question.is_stale = true;  // an earlier action's yes may be void by now: all are asked again
    }
    if (changed_) {
        changed_();
    }
}

void PolkitAuthority::settle(std::uint64_t id, Verdict verdict) {
    const auto found = questions_.find(id);
    const Question question = std::move(found->second);
    questions_.erase(found);
    question.callback(verdict, verdict == Verdict::Granted ? std::string() : question.actions[question.next]);
}

void PolkitAuthority::forget(const Peer& subject) noexcept {
    guard_event("forgetting a grant", [&] {
        const std::string key = key_of(subject);
        const auto first = authenticated_.lower_bound(Grant{key, {}});
        auto last = first;
        while (last != authenticated_.end() && last->first == key) {
            ++last;
        }
        authenticated_.erase(first, last);
    });
}

void PolkitAuthority::fail_all() noexcept {
    is_lost_ = true;
    while (!questions_.empty()) {
        guard_event("a question without polkit", [this] { settle(questions_.begin()->first, Verdict::Unavailable); });
    }
    polkit_.reset();
}

}  // namespace perceptd::bus
