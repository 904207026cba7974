#include "bus/ledger_object.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bus/interface.hpp"
#include "session/actions.hpp"

namespace perceptd::bus {
namespace {

constexpr const char* kLedger = "org.perceptd1.Ledger";
constexpr std::size_t kPendingMax = 64;
constexpr std::uint32_t kRetryAfterMs = 1000;

using Variants = std::map<std::string, sdbus::Variant>;
using ModelRow = sdbus::Struct<std::string, std::uint64_t, std::uint64_t>;
using SensorRow =
    sdbus::Struct<std::uint32_t, std::uint32_t, std::string, std::string, std::int64_t, std::int64_t, bool>;
using MilestoneRow = sdbus::Struct<std::string, std::uint64_t, std::int64_t>;

Variants to_variants(const store::LedgerSummary& summary) {
    std::vector<ModelRow> models;
    for (const store::ModelUse& model : summary.models) {
        models.push_back(sdbus::make_struct(model.model, model.turns, model.tokens));
    }
    std::vector<SensorRow> uses;
    for (const store::SensorUse& use : summary.sensor_uses) {
        uses.push_back(sdbus::make_struct(use.uid, use.pid, use.program, use.sensor, use.from_ms,
                                          use.to_ms.value_or(std::int64_t{-1}), use.is_over));
    }
    std::vector<MilestoneRow> milestones;
    for (const store::Milestone& milestone : summary.milestones) {
        milestones.push_back(sdbus::make_struct(milestone.kind, milestone.value, milestone.reached_at_ms));
    }
    return {{"sessions", sdbus::Variant(summary.sessions)},
            {"answers", sdbus::Variant(summary.turns)},
            {"tokens", sdbus::Variant(summary.tokens)},
            {"active_days", sdbus::Variant(summary.active_days)},
            {"models", sdbus::Variant(models)},
            {"sensor_uses", sdbus::Variant(uses)},
            {"milestones", sdbus::Variant(milestones)}};
}

/// The program's name comes from /proc and may hold anything; the bus takes UTF-8 alone.
void make_printable(store::LedgerSummary& summary) {
    for (store::SensorUse& use : summary.sensor_uses) {
        for (char& byte : use.program) {
            const auto value = static_cast<unsigned char>(byte);
            byte = value < 0x20 || value > 0x7e ? '?' : byte;
        }
    }
}

template <typename Value>
Value argument_of(sdbus::MethodCall call) try {
    Value value{};
    call >> value;
    return value;
} catch (const sdbus::Error& error) {
    throw Error(ErrorCode::InvalidArgument, "the arguments cannot be read: " + error.getMessage());
}

std::uint32_t uid_of(store::LedgerOwner owner) {
    return owner.value();  // only Read and Erase may be for everybody
}

}  // namespace

LedgerObject::LedgerObject(Connection& connection, CallerLookup& lookup, session::Authority& authority,
                           store::Store& store)
    : connection_(connection),
      lookup_(lookup),
      authority_(authority),
      store_(store),
      object_(sdbus::createObject(connection.native(), std::string(kRootPath) + "/ledger")) {
    Interface ledger(*object_, kLedger);
    ledger.method("Read", {"b", {"everybody"}}, {"a{sv}", {"summary"}}, [this](const sdbus::MethodCall& call) {
        serve(call, argument_of<bool>(call), [](store::StoreTables& tables, store::LedgerOwner owner) -> Answer {
            store::LedgerSummary summary = tables.ledger.read(owner);
            make_printable(summary);
            return [summary = std::move(summary)](sdbus::MethodReply& reply) { reply << to_variants(summary); };
        });
    });
    ledger.method("Erase", {"b", {"everybody"}}, {"t", {"answer_count"}}, [this](const sdbus::MethodCall& call) {
        serve(call, argument_of<bool>(call), [](store::StoreTables& tables, store::LedgerOwner owner) -> Answer {
            const std::uint64_t count = tables.turns.remove_all(owner);
            tables.ledger.erase(owner);
            return [count](sdbus::MethodReply& reply) { reply << count; };
        });
    });
    ledger.method("Forget", {"t", {"generation_id"}}, {}, [this](const sdbus::MethodCall& call) {
        const auto id = argument_of<std::uint64_t>(call);
        serve(call, false, [id](store::StoreTables& tables, store::LedgerOwner owner) -> Answer {
            if (!tables.turns.remove(uid_of(owner), id)) {
                throw Error(ErrorCode::NotFound,
                            "no answer " + std::to_string(id) + " of yours is kept; one that runs is kept at its end");
            }
            tables.database.checkpoint();
            return [](sdbus::MethodReply&) {};
        });
    });
    ledger.method("TakeMilestone", {}, {"a{sv}", {"milestone"}}, [this](const sdbus::MethodCall& call) {
        serve(call, false, [](store::StoreTables& tables, store::LedgerOwner owner) -> Answer {
            const auto milestone = tables.ledger.take_milestone(uid_of(owner), store::wall_ms());
            return [milestone](sdbus::MethodReply& reply) {
                Variants fields;
                if (milestone) {
                    fields = {{"kind", sdbus::Variant(milestone->kind)},
                              {"value", sdbus::Variant(milestone->value)},
                              {"reached_at_ms", sdbus::Variant(milestone->reached_at_ms)}};
                }
                reply << fields;
            };
        });
    });
    object_->finishRegistration();
}

void LedgerObject::serve(const sdbus::MethodCall& call, bool wants_everybody, Work work) {
    if (pending_count_ >= kPendingMax) {
        Error error(ErrorCode::Busy, "too many calls wait for the ledger; try again later");
        error.limit = kPendingMax;
        error.used = pending_count_;
        error.retry_after_ms = kRetryAfterMs;
        throw error;
    }
    lookup_.identify(call.getSender(), [this, call, wants_everybody, work = std::move(work),
                                        alive = std::weak_ptr<char>(alive_)](const session::Peer* peer) {
        if (alive.expired()) {
            return;
        }
        guard_call(call, [&] {
            if (peer == nullptr) {
                throw Error(ErrorCode::NotAuthorized, "the bus does not say who you are; try again");
            }
            if (!wants_everybody) {
                work_for(call, peer->uid, work);
                return;
            }
            authority_.authorize(*peer, {session::kManageAction},
                                 [this, call, work, alive](session::Verdict verdict, const std::string& denied) {
                                     if (alive.expired()) {
                                         return;
                                     }
                                     guard_call(call, [&] {
                                         if (verdict == session::Verdict::Denied) {
                                             throw Error(ErrorCode::NotAuthorized, authority_.denial(denied));
                                         }
                                         if (verdict != session::Verdict::Granted) {
                                             throw Error(
                                                 ErrorCode::AuthorityUnavailable,
                                                 "polkit does not answer, so nothing is granted; is it running?");
                                         }
                                         work_for(call, std::nullopt, work);
                                     });
                                 });
        });
    });
}

void LedgerObject::work_for(const sdbus::MethodCall& call, store::LedgerOwner owner, const Work& work) {
    const auto answer = std::make_shared<Answer>();
    ++pending_count_;
    store_.ask([work, owner, answer](store::StoreTables& tables) { *answer = work(tables, owner); },
               [this, call, answer, alive = std::weak_ptr<char>(alive_)](std::exception_ptr failure) {
                   if (alive.expired()) {
                       return;
                   }
                   --pending_count_;
                   if (!connection_.is_open()) {
                       return;
                   }
                   guard_call(call, [&] {
                       if (failure) {
                           std::rethrow_exception(failure);
                       }
                       sdbus::MethodReply reply = call.createReply();
                       (*answer)(reply);
                       reply.send();
                   });
               });
}

}  // namespace perceptd::bus
