// What sessions need of the part that answers questions. Owns nothing.
// Never seen by the stages before: the daemon implements it.
#pragma once

#include <cstdint>

#include "generate/answering.hpp"

namespace perceptd::session {

/// Threads: main thread. Replies come later, on the main thread, also when the session has gone.
class Answers {
public:
    virtual ~Answers() = default;
    virtual void ask(std::uint32_t uid, generate::Question question, generate::Answering::Reply reply) = 0;
    virtual void resume(std::uint32_t uid, std::uint64_t id, generate::Answering::Reply reply) = 0;
    virtual void stop(std::uint32_t uid, std::uint64_t id) = 0;
};

}  // namespace perceptd::session
