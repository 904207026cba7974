// The thread that answers clients: loads models, runs the generations of all users in turns of one pass, resumes what
// was cut short. Owns the thread, the worker team, the models (through its source) and all running generations. Never
// lets the main thread wait, never lets one user see another's answer, and never stops for a client that does not read.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "generate/kept_generation.hpp"

namespace perceptd::generate {

/// An answer that can be read: it runs, or it is over.
struct Begun {
    std::uint64_t id = 0;
    std::uint64_t thread = 0;
    std::uint64_t prompt_tokens = 0;
    std::uint64_t tokens_max = 0;
    std::uint64_t context_tokens_max = 0;
    std::uint64_t seed = 0;
    std::shared_ptr<const AnswerLog> log;
};

struct AnsweringOptions {
    std::size_t worker_count = 1;
    std::size_t running_per_user_max = 4;
    std::size_t running_max = 4;
    /// Who was answered how much, on the answering thread, when an answer ends or is interrupted.
    std::function<void(std::uint32_t uid, const std::string& model, std::uint64_t tokens, bool is_new_turn)>
        on_answered;
};

/// Threads: main thread.
class Answering {
public:
    /// Exactly one of the two is given; runs on the main thread out of run_replies().
    using Reply = std::function<void(const Begun* begun, const Error* error)>;
    using MakeModels = std::function<std::unique_ptr<ModelSource>(engine::WorkerTeam&)>;

    /// `store` outlives it. Throws std::system_error when there is no thread or descriptor.
    Answering(store::Store& store, MakeModels make_models, AnsweringOptions options);
    /// What runs is interrupted behind its present pass.
    ~Answering();
    Answering(const Answering&) = delete;
    Answering& operator=(const Answering&) = delete;

    void ask(std::uint32_t uid, Question question, Reply reply);
    /// An answer of the same user: running, cut short, or over. Several readers may resume one answer.
    void resume(std::uint32_t uid, std::uint64_t id, Reply reply);
    /// Ends a running answer of the same user; nothing when there is none.
    void stop(std::uint32_t uid, std::uint64_t id);

    /// Readable when replies wait or some answer has grown; run_replies() clears it.
    [[nodiscard]] int ready_fd() const noexcept { return ready_.borrow(); }
    void run_replies();

private:
    struct Running {
        std::uint32_t uid;
        std::string model;
        bool is_new_turn;
        Begun begun;
        std::unique_ptr<KeptGeneration> generation;
    };

    void serve();
    void run_commands(std::unique_lock<std::mutex>& lock);
    void step_all();
    void ended(const Running& running) noexcept;
    Begun begin(std::uint32_t uid, Question question);
    Begun go_on(std::uint32_t uid, std::uint64_t id);
    Begun start(std::shared_ptr<ServedModel> model, const store::StoredTurn& turn, const Question& question);
    void require_room(std::uint32_t uid) const;
    void enqueue(std::function<void()> command);
    void answer(const Reply& reply, const std::function<Begun()>& work);

    store::Store& store_;
    MakeModels make_models_;
    AnsweringOptions options_;
    UniqueFd ready_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> commands_;
    std::vector<std::function<void()>> replies_;
    bool stops_ = false;
    // Of the thread:
    std::unique_ptr<ModelSource> models_;
    std::map<std::uint64_t, Running> running_;
    std::thread thread_;
};

}  // namespace perceptd::generate
