// kill -9 at random points of an answer: the process that answers dies 1,000 times (PERCEPTD_TEST_KILLS others), and
// its successor goes on. The oracle is the same answer made in one piece, without a store and without a draft.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "../../support/scripted_drafter.hpp"
#include "generate/kept_generation.hpp"
#include "sensor/counter_rng.hpp"
#include "small_model.hpp"

namespace perceptd::generate {
namespace {

constexpr std::uint64_t kQuestions = 6;
constexpr std::size_t kTokens = 200;

struct Whole {
    store::TurnStart start;
    Question question;
    std::vector<std::uint32_t> tokens;
    std::string text;
    FinishReason finish = FinishReason::None;
};

/// What the client of one process saw, as it crosses the pipe.
struct Told {
    bool has_begun = false;
    std::uint64_t known_tokens = 0;  ///< that the store had when the process began
    std::vector<std::uint32_t> tokens;
    std::string text;
    FinishReason finish = FinishReason::None;
};

Whole in_one_piece(ServedModel& model, std::uint64_t number) {
    Whole whole;
    whole.question.options = {.sampling = {.seed = number, .temperature = number % 2 == 0 ? 0.9F : 0.0F},
                              .tokens_max = kTokens,
                              .stops = {"no such words"},
                              .continues_text = true};
    whole.question.model = "small";
    whole.start = {.id = number + 1,
                   .uid = 1000,
                   .thread = number + 1,
                   .model = "small",
                   .model_digest = model.digest,
                   .prompt = {5, 6, static_cast<std::uint32_t>(300 + number)},
                   .rng_key = number,
                   .sampler_digest = sampling_digest(whole.question),
                   .request = encoded(whole.question)};
    support::SilentDrafter silent;
    Depth depth({.fixed = 0});
    Generation generation(model.target->tokenizer().vocabulary(), model.target->open(1, test::kContextTokens), silent,
                          depth, whole.question.options, whole.start.prompt);
    while (generation.finish() == FinishReason::None) {
        const Piece piece = generation.step();
        whole.tokens.insert(whole.tokens.end(), piece.tokens.begin(), piece.tokens.end());
        whole.text += piece.text;
    }
    whole.finish = generation.finish();
    return whole;
}

void put(int fd, const void* data, std::size_t size) {
    if (::write(fd, data, size) != static_cast<ssize_t>(size)) {
        ::_exit(3);
    }
}

void put_part(int fd, const AnswerPart& part) {
    store::ByteWriter out;
    out.ids(part.tokens);
    out.text(part.text);
    out.varint(static_cast<std::uint64_t>(part.finish));
    const auto size = static_cast<std::uint32_t>(out.bytes().size());
    std::string packet(reinterpret_cast<const char*>(&size), sizeof(size));
    packet += out.view();
    put(fd, packet.data(), packet.size());  // at once: a pipe takes less than a page whole
}

constexpr int kNever = -1;

/// The process that is killed: goes on with the turn and tells the client from `from` on. It kills itself once it has
/// told `parts_until_kill` parts, so that some die in the middle of an answer however fast the machine is.
[[noreturn]] void answer(const std::string& folder, const std::shared_ptr<ServedModel>& model, const Whole& whole,
                         std::uint64_t from, int parts_until_kill, int fd) {
    try {
        store::Store store({.folder = folder});
        store::StoredTurn turn;
        if (auto found = store.find(whole.start.id)) {
            turn = std::move(*found);
        } else {
            turn.start = whole.start;
        }
        Question question;
        if (!decode(turn.start.request, question)) {
            ::_exit(4);
        }
        const std::uint64_t known = turn.tokens.size();
        put(fd, &known, sizeof(known));
        const auto log = std::make_shared<AnswerLog>();
        const auto tell = [&] {
            const AnswerPart part = log->read(from, 512);
            from += part.tokens.size();
            if (!part.tokens.empty() || part.finish != FinishReason::None) {
                put_part(fd, part);
                if (part.finish == FinishReason::None && --parts_until_kill == 0) {
                    ::kill(::getpid(), SIGKILL);
                }
            }
        };
        if (turn.is_interrupted()) {
            KeptGeneration generation(store, model, turn, question, log);
            tell();
            while (generation.step()) {
                tell();
            }
            tell();
        } else {
            put_part(fd, told_again(model->target->tokenizer().vocabulary(), turn, question)->read(from, 512));
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(5);
    }
    ::_exit(0);
}

Told read_told(int fd) {
    std::string bytes;
    char buffer[4096];
    for (ssize_t count = 0; (count = ::read(fd, buffer, sizeof(buffer))) > 0;) {
        bytes.append(buffer, static_cast<std::size_t>(count));
    }
    Told told;
    if (bytes.size() < sizeof(told.known_tokens)) {
        return told;  // killed before it knew anything
    }
    told.has_begun = true;
    std::memcpy(&told.known_tokens, bytes.data(), sizeof(told.known_tokens));
    for (std::size_t at = sizeof(told.known_tokens); at < bytes.size();) {
        std::uint32_t size = 0;
        std::memcpy(&size, bytes.data() + at, sizeof(size));
        store::ByteReader in(std::string_view(bytes).substr(at + sizeof(size), size));
        const auto ids = in.ids();
        told.tokens.insert(told.tokens.end(), ids.begin(), ids.end());
        told.text += in.text();
        told.finish = static_cast<FinishReason>(in.varint());
        REQUIRE(in.is_good());
        at += sizeof(size) + size;
    }
    return told;
}

}  // namespace

TEST_CASE("kill -9 at any point loses no token that was told, and the answer ends as if nothing had been") {
    const char* const wanted = std::getenv("PERCEPTD_TEST_KILLS");
    const int kills = wanted != nullptr ? std::atoi(wanted) : 1000;
    // In memory: it is the process that dies here, not the power.
    const store::test::StoreFolder folder(std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp");
    engine::WorkerTeam team({.worker_count = 1, .cpu_indices = {}});
    const auto model = test::serve(test::make_model(folder.file("small.gguf")), team,
                                   test::make_model(folder.file("draft.gguf"), model::Encoding::Q4_0));
    std::vector<Whole> wholes;
    for (std::uint64_t number = 0; number < kQuestions; ++number) {
        wholes.push_back(in_one_piece(*model, number));
        REQUIRE(wholes.back().tokens.size() > 5);
    }
    std::uint64_t turn = 0;
    std::vector<std::uint32_t> tokens;  // that the client was told of this turn
    std::string text;
    int cut = 0;
    int resumed = 0;
    int ended = 0;
    std::int64_t longest_us = 8000;
    for (int kill = 0; kill < kills; ++kill) {
        const std::uint64_t random = sensor::random_bits(1, 0, static_cast<std::uint64_t>(kill));
        const bool lives = kill % 10 == 9;
        const bool dies_by_itself = !lives && kill % 3 == 2;
        const bool is_shot = !lives && !dies_by_itself;  // at any instant, by the clock
        Whole whole = wholes[turn % kQuestions];
        whole.start.id = turn + 1;
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            ::close(ends[0]);
            answer(folder.path() + "/store", model, whole, tokens.size(),
                   dies_by_itself ? 1 + static_cast<int>(random % 3) : kNever, ends[1]);
        }
        ::close(ends[1]);
        if (is_shot) {
            ::usleep(static_cast<useconds_t>(random % static_cast<std::uint64_t>(longest_us)));
            ::kill(child, SIGKILL);
        }
        const Told told = read_told(ends[0]);
        ::close(ends[0]);
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE((WIFSIGNALED(status) || WEXITSTATUS(status) == 0));
        cut += WIFSIGNALED(status) && told.finish == FinishReason::None ? 1 : 0;
        resumed += !told.tokens.empty() && !tokens.empty() ? 1 : 0;
        REQUIRE((!told.has_begun || told.known_tokens >= tokens.size()));  // nothing that was told is lost
        tokens.insert(tokens.end(), told.tokens.begin(), told.tokens.end());
        text += told.text;
        REQUIRE(tokens.size() <= whole.tokens.size());
        REQUIRE(std::equal(tokens.begin(), tokens.end(), whole.tokens.begin()));
        REQUIRE(whole.text.compare(0, text.size(), text) == 0);
        if (told.finish != FinishReason::None) {
            REQUIRE(told.finish == whole.finish);
            REQUIRE(tokens == whole.tokens);
            REQUIRE(text == whole.text);
            ++ended;
            ++turn;
            tokens.clear();
            text.clear();
        }
        // Most of the processes should die in the middle of an answer, whatever the machine and the build.
        if (is_shot) {
            const bool is_late = !WIFSIGNALED(status) || told.finish != FinishReason::None;
            longest_us =
                std::clamp<std::int64_t>(is_late ? longest_us * 90 / 100 : longest_us * 104 / 100, 1000, 4'000'000);
        }
    }
    CAPTURE(cut, resumed, ended, longest_us);
    CHECK(cut > kills / 4);
    CHECK(resumed > kills / 10);
    CHECK(ended > kills / 50);
    store::Store store({.folder = folder.path() + "/store"});
    for (std::uint64_t id = 1; id <= turn; ++id) {
        const auto kept = store.find(id);
        REQUIRE(kept);
        CHECK(kept->tokens == wholes[(id - 1) % kQuestions].tokens);
    }
    std::fprintf(stderr, "%d processes: %d cut, %d went on, %d answers ended, 0 tokens lost\n", kills, cut, resumed,
                 ended);
}

}  // namespace perceptd::generate
