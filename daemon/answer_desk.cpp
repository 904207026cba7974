#include "answer_desk.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.hpp"
#include "model_shelf.hpp"

namespace perceptd {
namespace {

constexpr std::int64_t kDayMs = 24LL * 3600 * 1000;

store::StoreOptions store_options_of(const StoreSettings& settings, const std::string& root) {
    return {.folder = root + settings.folder,
            .size_bytes_max = std::size_t{settings.max_mib} << 20,
            .retention_ms = settings.retention_days * kDayMs,
            .calls = {}};
}

generate::AnsweringOptions answering_options_of(const GenerationSettings& settings, store::Store& store) {
    const std::size_t half = std::max(1U, std::thread::hardware_concurrency() / 2);
    return {
        .worker_count = settings.thread_count == 0 ? half : settings.thread_count,
        .running_per_user_max = settings.max_running,
        .running_max = settings.max_running,
        .on_answered = [&store](std::uint32_t uid, const std::string& model, std::uint64_t tokens, bool is_new_turn) {
            store.post([=](store::StoreTables& tables) {
                tables.ledger.add_answer(uid, model, tokens, is_new_turn, store::wall_ms());
            });
        }};
}

}  // namespace

AnswerDesk::AnswerDesk(EventLoop& loop, const Settings& settings, const std::string& root, model::CatalogOptions models,
                       std::function<void()> on_grown)
    : store_(store_options_of(settings.store, root)),
      book_(store_),
      answering_(
          store_,
          [options = ModelShelfOptions{.catalog = std::move(models),
                                       .context_tokens_max = settings.generation.context_tokens,
                                       .running_max = settings.generation.max_running}](engine::WorkerTeam& team) {
              return std::make_unique<ModelShelf>(team, options);
          },
          answering_options_of(settings.generation, store_)),
      stored_(loop.add_io(store_.reply_fd(), EPOLLIN, [this](std::uint32_t) { store_.run_replies(); })),
      grown_(loop.add_io(answering_.ready_fd(), EPOLLIN, [this, on_grown = std::move(on_grown)](std::uint32_t) {
          answering_.run_replies();
          on_grown();
      })) {}

void AnswerDesk::ask(std::uint32_t uid, generate::Question question, generate::Answering::Reply reply) {
    answering_.ask(uid, std::move(question), std::move(reply));
}

void AnswerDesk::resume(std::uint32_t uid, std::uint64_t id, generate::Answering::Reply reply) {
    answering_.resume(uid, id, std::move(reply));
}

void AnswerDesk::stop(std::uint32_t uid, std::uint64_t id) {
    answering_.stop(uid, id);
}

}  // namespace perceptd
