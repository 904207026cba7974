// The answering thread with a real model: who may read what, how many at a time, dialogues, what happens when nothing
// can be kept.
#include "generate/answering.hpp"

#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>

#include "small_model.hpp"

namespace perceptd::generate {
namespace {

std::atomic<bool> disk_is_full{false};
ssize_t write_or_full(int fd, const void* data, std::size_t size) {
    if (disk_is_full) {
        errno = ENOSPC;
        return -1;
    }
    return ::write(fd, data, size);
}

std::atomic<bool> is_shut{false};  ///< the model takes its time to load

class OneModel final : public ModelSource {
public:
    OneModel(engine::WorkerTeam& team, const std::string& path, std::string digest) : model_(test::serve(path, team)) {
        model_->digest = std::move(digest);
    }
    std::shared_ptr<ServedModel> open(std::string_view name, std::string_view) override {
        while (is_shut) {
            ::usleep(1000);
        }
        if (name != "small") {
            throw Error(ErrorCode::NotFound, "no model " + std::string(name));
        }
        return model_;
    }
    void evict_idle(std::int64_t) noexcept override {}

private:
    std::shared_ptr<ServedModel> model_;
};

struct Outcome {
    std::optional<Begun> begun;
    std::optional<Error> error;
};

struct Room {
    store::test::StoreFolder folder;
    std::string path = test::make_model(folder.file("small.gguf"));
    std::unique_ptr<store::Store> store;
    std::unique_ptr<Answering> answering;
    std::atomic<std::uint64_t> answered_tokens{0};
    std::string digest = "d1";

    Room() { open(); }
    ~Room() { close(); }
    void open() {
        store = std::make_unique<store::Store>(
            store::StoreOptions{.folder = folder.path() + "/store", .calls = {.write = write_or_full}});
        answering = std::make_unique<Answering>(
            *store, [this](engine::WorkerTeam& team) { return std::make_unique<OneModel>(team, path, digest); },
            AnsweringOptions{.running_per_user_max = 2,
                             .running_max = 3,
                             .on_answered = [this](std::uint32_t, const std::string&, std::uint64_t tokens, bool) {
                                 answered_tokens += tokens;
                             }});
    }
    void close() {
        answering.reset();
        store.reset();
    }
    template <typename Condition>
    void wait_until(Condition&& condition) {
        for (int i = 0; i < 3000 && !condition(); ++i) {
            pollfd ready{answering->ready_fd(), POLLIN, 0};
            static_cast<void>(::poll(&ready, 1, 10));
            answering->run_replies();
        }
        REQUIRE(condition());
    }
    Answering::Reply into(Outcome& outcome) {
        return [&outcome](const Begun* begun, const Error* error) {
            if (begun != nullptr) {
                outcome.begun = *begun;
            } else {
                outcome.error = *error;
            }
        };
    }
    Outcome ask(Question question, std::uint32_t uid = 1000) {
        Outcome outcome;
        answering->ask(uid, std::move(question), into(outcome));
        wait_until([&] { return outcome.begun || outcome.error; });
        return outcome;
    }
    Outcome resume(std::uint64_t id, std::uint32_t uid = 1000) {
        Outcome outcome;
        answering->resume(uid, id, into(outcome));
        wait_until([&] { return outcome.begun || outcome.error; });
        return outcome;
    }
    AnswerPart whole(const Begun& begun) {
        wait_until([&] { return begun.log->finish() != FinishReason::None; });
        return begun.log->read(0, 100'000);
    }
};

Question question(std::size_t tokens, std::uint64_t seed = 1) {
    Question asked;
    asked.model = "small";
    asked.text = "what is this";
    asked.has_seed = true;
    asked.options = {.sampling = {.seed = seed, .temperature = 0.9F}, .tokens_max = tokens};
    for (std::uint32_t mark = 0; mark < 3; ++mark) {
        asked.options.sampling.biases.push_back({mark, -INFINITY});  // only the length ends it
    }
    return asked;
}

}  // namespace

TEST_CASE("an answer is its user's: it is read again, resumed after a restart, and nobody else's") {
    Room room;
    const Outcome first = room.ask(question(100));
    REQUIRE(first.begun);
    const AnswerPart whole = room.whole(*first.begun);
    CHECK(whole.finish == FinishReason::TokensMax);
    CHECK(whole.tokens.size() == 100);
    for (int round = 0; round < 2; ++round) {
        const Outcome again = room.resume(first.begun->id);
        REQUIRE(again.begun);
        CHECK(again.begun->tokens_max == 100);
        const AnswerPart same = room.whole(*again.begun);
        CHECK(same.tokens == whole.tokens);
        CHECK(same.text == whole.text);
        CHECK(same.finish == whole.finish);
        CHECK(room.resume(first.begun->id, 1001).error->code() == ErrorCode::NotFound);
        room.close();
        room.open();
    }
    CHECK(room.answered_tokens == 100);
    CHECK(room.resume(123).error->code() == ErrorCode::NotFound);
    room.close();
    room.digest = "another file";
    room.open();
    CHECK(room.resume(first.begun->id).error->code() == ErrorCode::Unsupported);
}

TEST_CASE("an orderly end interrupts what runs, and it goes on to the same end") {
    Room room;
    const Outcome wanted = room.ask(question(200));
    const AnswerPart whole = room.whole(*wanted.begun);
    const Outcome cut = room.ask(question(200));
    room.wait_until([&] { return cut.begun->log->token_count() >= 3; });
    room.close();
    room.open();
    CHECK(cut.begun->log->finish() != FinishReason::None);
    const Outcome rest = room.resume(cut.begun->id);
    REQUIRE(rest.begun);
    CHECK(room.whole(*rest.begun).tokens == whole.tokens);
    CHECK(room.whole(*rest.begun).text == whole.text);
}

TEST_CASE("a user has a few answers at a time, and all users together too") {
    Room room;
    std::vector<Outcome> outcomes(5);
    const std::vector<std::uint32_t> uids{1000, 1000, 1000, 1001, 1002};
    is_shut = true;  // all are asked before the first can end
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        room.answering->ask(uids[i], question(200), room.into(outcomes[i]));
    }
    is_shut = false;
    room.wait_until([&] {
        return std::all_of(outcomes.begin(), outcomes.end(),
                           [](const Outcome& outcome) { return outcome.begun || outcome.error; });
    });
    CHECK((outcomes[0].begun && outcomes[1].begun && outcomes[3].begun));
    for (const std::size_t refused : {2, 4}) {
        REQUIRE(outcomes[refused].error);
        CHECK(outcomes[refused].error->code() == ErrorCode::Busy);
        CHECK(outcomes[refused].error->limit == (refused == 2 ? 2U : 3U));
        CHECK(outcomes[refused].error->retry_after_ms.has_value());
    }
    for (const Outcome& outcome : outcomes) {
        if (outcome.begun) {
            room.answering->stop(1000, outcome.begun->id);
            room.answering->stop(1001, outcome.begun->id);
            room.whole(*outcome.begun);
        }
    }
    const Outcome after = room.ask(question(5));
    CHECK(after.begun);
}

TEST_CASE("a dialogue goes on behind its newest answer, for its user alone") {
    Room room;
    const Outcome first = room.ask(question(20));
    const AnswerPart said = room.whole(*first.begun);
    Question next = question(20, 2);
    next.thread = first.begun->thread;
    next.model.clear();
    room.store->run([](store::StoreTables&) {});
    const Outcome second = room.ask(next);
    REQUIRE(second.begun);
    CHECK(second.begun->thread == first.begun->thread);
    // The model of this test puts a begin token before a text, and the text is the same.
    CHECK(second.begun->prompt_tokens == 2 * first.begun->prompt_tokens + said.tokens.size() - 1);
    room.whole(*second.begun);
    CHECK(room.ask(next, 1001).error->code() == ErrorCode::NotFound);
    next.thread = 4711;
    CHECK(room.ask(next).error->code() == ErrorCode::NotFound);
}

TEST_CASE("what does not fit or makes no sense is refused with its numbers") {
    Room room;
    Question asked = question(10);
    asked.text.clear();
    CHECK(room.ask(asked).error->code() == ErrorCode::InvalidArgument);
    asked.text = "\xc3\x28";
    CHECK(room.ask(asked).error->code() == ErrorCode::InvalidArgument);
    asked.text = std::string(4000, 'x');
    const Outcome long_one = room.ask(asked);
    CHECK(long_one.error->code() == ErrorCode::QuotaExceeded);
    CHECK(long_one.error->limit == test::kContextTokens);
    CHECK(long_one.error->used > test::kContextTokens);
    CHECK(room.ask(question(test::kContextTokens)).error->code() == ErrorCode::QuotaExceeded);
    asked = question(10);
    asked.options.sampling.temperature = -1;
    CHECK(room.ask(asked).error->code() == ErrorCode::InvalidArgument);
    asked = question(0);
    const Outcome open_end = room.ask(asked);
    REQUIRE(open_end.begun);
    CHECK(open_end.begun->tokens_max == test::kContextTokens - open_end.begun->prompt_tokens);
    CHECK(room.whole(*open_end.begun).tokens.size() == open_end.begun->tokens_max);
    asked = question(10);
    asked.model = "none";
    CHECK(room.ask(asked).error->code() == ErrorCode::NotFound);
}

TEST_CASE("a disk that fills up ends the answer with the reason, and it goes on when there is room") {
    Room room;
    const AnswerPart whole = room.whole(*room.ask(question(200)).begun);
    disk_is_full = true;
    const Outcome refused = room.ask(question(200));
    CHECK(refused.error->code() == ErrorCode::Internal);
    disk_is_full = false;
    const Outcome cut = room.ask(question(200));
    room.wait_until([&] { return cut.begun->log->token_count() >= 2; });
    disk_is_full = true;
    const AnswerPart part = room.whole(*cut.begun);
    disk_is_full = false;
    if (part.finish != FinishReason::TokensMax) {  // else it was quicker than the disk
        CHECK(part.finish == FinishReason::Interrupted);
        CHECK(part.failure.find("cannot be kept") != std::string::npos);
        CHECK(std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin()));
    }
    const Outcome rest = room.resume(cut.begun->id);
    REQUIRE(rest.begun);
    CHECK(room.whole(*rest.begun).tokens == whole.tokens);
}

}  // namespace perceptd::generate
