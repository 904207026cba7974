#include "generate/answering.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/clock.hpp"
#include "base/event_fd.hpp"
#include "base/log.hpp"
#include "generate/prompt.hpp"

namespace perceptd::generate {
namespace {

constexpr auto kLookAtIdleModels = std::chrono::seconds(30);
constexpr std::uint32_t kRetryAfterMs = 1000;

std::uint64_t random_number() {
    std::uint64_t number = 0;
    if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
        throw_errno("getrandom");
    }
    return number;
}

/// 1 to 2^53 - 1: also a number in JSON.
std::uint64_t new_id() {
    return std::max<std::uint64_t>(random_number() >> 11, 1);
}

std::vector<std::uint32_t> prompt_of(const ServedModel& model, const std::string& text,
                                     const std::optional<store::StoredTurn>& before) {
    const model::Tokenizer& tokenizer = model.target->tokenizer();
    std::vector<std::uint32_t> own = encode_prompt(tokenizer, model.prompt_form, text);
    if (!before) {
        return own;
    }
    std::vector<std::uint32_t> whole = before->start.prompt;
    whole.insert(whole.end(), before->tokens.begin(), before->tokens.end());
    whole.insert(whole.end(), own.begin() + (tokenizer.vocabulary().adds_bos() ? 1 : 0), own.end());
    return whole;
}

[[noreturn]] void refuse_context(std::size_t prompt_tokens, std::size_t tokens_max, std::size_t context_tokens_max) {
    Error error(ErrorCode::QuotaExceeded,
                "a prompt of " + std::to_string(prompt_tokens) + " tokens and an answer of up to " +
                    std::to_string(tokens_max) + " do not fit into the model's context of " +
                    std::to_string(context_tokens_max) + "; shorten the prompt or ask for a shorter answer");
    error.limit = context_tokens_max;
    error.used = prompt_tokens + tokens_max;
    throw error;
}

}  // namespace

Answering::Answering(store::Store& store, MakeModels make_models, AnsweringOptions options)
    : store_(store), make_models_(std::move(make_models)), options_(std::move(options)), ready_(make_event()) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the main thread's
    thread_ = std::thread([this] { serve(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Answering::~Answering() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Answering::serve() {
    ::pthread_setname_np(::pthread_self(), "answering");
    std::unique_ptr<engine::WorkerTeam> team;
    try {
        team = std::make_unique<engine::WorkerTeam>(
            engine::WorkerTeamOptions{.worker_count = options_.worker_count, .cpu_indices = {}});
        models_ = make_models_(*team);
    } catch (const std::exception& error) {
        log::error("generate", std::string("no model can run: ") + error.what());
    }
    std::unique_lock lock(mutex_);
    while (!stops_) {
        if (!commands_.empty()) {
            run_commands(lock);
        } else if (!running_.empty()) {
            lock.unlock();
            step_all();
            lock.lock();
        } else {
            changed_.wait_for(lock, kLookAtIdleModels);
            if (models_) {
                lock.unlock();
                models_->evict_idle(monotonic_ns());
                lock.lock();
            }
        }
    }
    lock.unlock();
    for (auto& [id, running] : running_) {
        ended(running);
    }
    running_.clear();
    models_.reset();  // before the team that its models run on
}

void Answering::run_commands(std::unique_lock<std::mutex>& lock) {
    const std::deque<std::function<void()>> commands = std::exchange(commands_, {});
    lock.unlock();
    for (const auto& command : commands) {
        command();
    }
    lock.lock();
}

void Answering::step_all() {
    for (auto next = running_.begin(); next != running_.end();) {
        if (next->second.generation->step()) {
            ++next;
        } else {
            ended(next->second);
            next = running_.erase(next);
        }
    }
    signal_event(ready_.borrow());
}

void Answering::ended(const Running& running) noexcept {
    try {
        if (options_.on_answered) {
            options_.on_answered(running.uid, running.model, running.generation->made_tokens(), running.is_new_turn);
        }
    } catch (const std::exception& error) {
        log::error("generate", error.what());
    }
}

void Answering::require_room(std::uint32_t uid) const {
    const auto of_user = static_cast<std::size_t>(
        std::count_if(running_.begin(), running_.end(), [uid](const auto& item) { return item.second.uid == uid; }));
    const bool is_user = of_user >= options_.running_per_user_max;
    if (is_user || running_.size() >= options_.running_max) {
        Error error(ErrorCode::Busy, is_user ? "too many of your answers run; wait for one or stop one"
                                             : "too many answers run; try again later");
        error.limit = is_user ? options_.running_per_user_max : options_.running_max;
        error.used = is_user ? of_user : running_.size();
        error.retry_after_ms = kRetryAfterMs;
        throw error;
    }
}

Begun Answering::begin(std::uint32_t uid, Question question) {
    check(question);
    require_room(uid);
    std::optional<store::StoredTurn> before;
    if (question.thread != 0) {
        const auto first = store_.find(question.thread);
        if (!first || first->start.uid != uid) {
            throw Error(ErrorCode::NotFound, "there is no answer " + std::to_string(question.thread) +
                                                 " of yours to go on from; begin a new dialogue");
        }
        const std::uint64_t thread = first->start.thread;
        store_.run([&](store::StoreTables& tables) { before = tables.turns.newest(uid, thread); });
        if (!before) {
            throw Error(ErrorCode::Busy, "no answer of this dialogue has ended yet; wait for it, or resume it");
        }
        question.model = question.model.empty() ? before->start.model : question.model;
    }
    std::shared_ptr<ServedModel> model = models_->open(question.model, question.version);
    if (before && before->start.model_digest != model->digest) {
        throw Error(ErrorCode::Unsupported, "the dialogue was held with another model; begin a new one");
    }
    if (!question.has_seed && question.options.sampling.temperature > 0) {
        question.options.sampling.seed = random_number();
    }
    question.version = model->version;
    question.options.continues_text = model->prompt_form == kPromptMark;
    store::StoredTurn turn;
    turn.start = {.id = new_id(),
                  .uid = uid,
                  .model = model->name,
                  .model_digest = model->digest,
                  .prompt = prompt_of(*model, question.text, before),
                  .rng_key = question.options.sampling.seed,
                  .started_at_ms = store::wall_ms()};
    turn.start.thread = before ? before->start.thread : turn.start.id;
    const std::size_t prompt_tokens = turn.start.prompt.size();
    const std::size_t context = model->target->context_tokens_max();
    std::size_t& tokens_max = question.options.tokens_max;
    if (prompt_tokens >= context || tokens_max > context - prompt_tokens) {
        refuse_context(prompt_tokens, std::max<std::size_t>(tokens_max, 1), context);
    }
    tokens_max = tokens_max == 0 ? std::min(Question::kTokensDefault, context - prompt_tokens) : tokens_max;
    turn.start.request = encoded(question);
    turn.start.sampler_digest = sampling_digest(question);
    return start(std::move(model), turn, question);
}

Begun Answering::go_on(std::uint32_t uid, std::uint64_t id) {
    const auto known = running_.find(id);
    if (known != running_.end() && known->second.uid == uid) {
        return known->second.begun;
    }
    const auto turn = store_.find(id);
    if (!turn || turn->start.uid != uid) {
        throw Error(ErrorCode::NotFound, "there is no answer " + std::to_string(id) +
                                             " of yours; it may have been deleted, or forgotten after its time");
    }
    Question question;
    question.model = turn->start.model;
    if (!decode(turn->start.request, question) || question.options.sampling.seed != turn->start.rng_key ||
        sampling_digest(question) != turn->start.sampler_digest) {
        throw Error(ErrorCode::Internal, "the kept answer " + std::to_string(id) + " is damaged; ask again");
    }
    std::shared_ptr<ServedModel> model = models_->open(question.model, question.version);
    if (turn->is_interrupted()) {
        require_room(uid);
        return start(std::move(model), *turn, question);
    }
    if (turn->start.model_digest != model->digest) {
        throw Error(ErrorCode::Unsupported,
                    "the model " + turn->start.model + " is another one now; the answer's words would be wrong");
    }
    return {.id = id,
            .thread = turn->start.thread,
            .prompt_tokens = turn->start.prompt.size(),
            .tokens_max = question.options.tokens_max,
            .context_tokens_max = model->target->context_tokens_max(),
            .seed = turn->start.rng_key,
            .log = told_again(model->target->tokenizer().vocabulary(), *turn, question)};
}

Begun Answering::start(std::shared_ptr<ServedModel> model, const store::StoredTurn& turn, const Question& question) {
    auto log = std::make_shared<AnswerLog>();
    Begun begun{.id = turn.start.id,
                .thread = turn.start.thread,
                .prompt_tokens = turn.start.prompt.size(),
                .tokens_max = question.options.tokens_max,
                .context_tokens_max = model->target->context_tokens_max(),
                .seed = turn.start.rng_key,
                .log = log};
    auto generation = std::make_unique<KeptGeneration>(store_, std::move(model), turn, question, log);
    running_.emplace(turn.start.id,
                     Running{turn.start.uid, turn.start.model, turn.tokens.empty(), begun, std::move(generation)});
    return begun;
}

void Answering::enqueue(std::function<void()> command) {
    {
        const std::lock_guard lock(mutex_);
        commands_.push_back(std::move(command));
    }
    changed_.notify_all();
}

void Answering::answer(const Reply& reply, const std::function<Begun()>& work) {
    std::optional<Begun> begun;
    std::optional<Error> failure;
    try {
        if (!models_) {
            throw Error(ErrorCode::Internal, "no model can run on this device now; the log says why");
        }
        begun = work();
    } catch (const Error& error) {
        failure = error;
    } catch (const std::exception& error) {
        failure = Error(ErrorCode::Internal, error.what());
    }
    {
        const std::lock_guard lock(mutex_);
        replies_.push_back(
            [reply, begun, failure] { reply(begun ? &*begun : nullptr, failure ? &*failure : nullptr); });
    }
    signal_event(ready_.borrow());
}

void Answering::ask(std::uint32_t uid, Question question, Reply reply) {
    enqueue([this, uid, question = std::move(question), reply = std::move(reply)] {
        answer(reply, [&] { return begin(uid, question); });
    });
}

void Answering::resume(std::uint32_t uid, std::uint64_t id, Reply reply) {
    enqueue([this, uid, id, reply = std::move(reply)] { answer(reply, [&] { return go_on(uid, id); }); });
}

void Answering::stop(std::uint32_t uid, std::uint64_t id) {
    enqueue([this, uid, id] {
        const auto known = running_.find(id);
        if (known != running_.end() && known->second.uid == uid) {
            known->second.generation->cancel();
        }
    });
}

void Answering::run_replies() {
    clear_event(ready_.borrow());
    std::vector<std::function<void()>> replies;
    {
        const std::lock_guard lock(mutex_);
        replies.swap(replies_);
    }
    for (const auto& reply : replies) {
        reply();
    }
}

}  // namespace perceptd::generate
