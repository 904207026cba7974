// Where questions of sessions become answers: the store, the answering thread, and the way back to the loop.
// Owns all three, and the book of who used what. Never waits for a disk or a model on the main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/event_loop.hpp"
#include "generate/answering.hpp"
#include "model/catalog.hpp"
#include "session/answers.hpp"
#include "settings.hpp"
#include "store/store.hpp"
#include "usage_book.hpp"

namespace perceptd {

/// Thread-bound (main thread). `loop` outlives it.
class AnswerDesk final : public session::Answers {
public:
    /// `on_grown` is called when some answer has grown. `root` stands before the store's folder. Throws
    /// std::system_error when there is no thread or descriptor; a store that cannot be opened is told to whoever asks.
    AnswerDesk(EventLoop& loop, const Settings& settings, const std::string& root, model::CatalogOptions models,
               std::function<void()> on_grown);

    void ask(std::uint32_t uid, generate::Question question, generate::Answering::Reply reply) override;
    void resume(std::uint32_t uid, std::uint64_t id, generate::Answering::Reply reply) override;
    void stop(std::uint32_t uid, std::uint64_t id) override;

    [[nodiscard]] store::Store& store() noexcept { return store_; }
    [[nodiscard]] UsageBook& book() noexcept { return book_; }

private:
    store::Store store_;
    UsageBook book_;
    generate::Answering answering_;
    std::unique_ptr<EventSource> stored_;
    std::unique_ptr<EventSource> grown_;
};

}  // namespace perceptd
