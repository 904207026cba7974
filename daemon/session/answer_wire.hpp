// The messages about answers of channel.proto, in and out of bytes; with wire.hpp the only pair in the daemon that
// knows protobuf. Owns nothing. Never trusts what it decodes, never does I/O.
#pragma once

#include <string>

#include "generate/answering.hpp"

namespace perceptd::v1 {
class ClientMessage;
class Error;
}  // namespace perceptd::v1

namespace perceptd::session {

struct Request;

/// Generate, StopGeneration or Resume into `request`; false for any other message.
[[nodiscard]] bool read_answer_request(const v1::ClientMessage& message, Request& request);
/// The fields of an Error message but for `fatal`.
void fill(v1::Error& out, const Error& error);

[[nodiscard]] std::string begun_message(std::uint64_t request_id, const generate::Begun& begun,
                                        std::uint64_t next_number);
[[nodiscard]] std::string refused_message(std::uint64_t request_id, const Error& error);
[[nodiscard]] std::string token_message(std::uint64_t generation_id, const generate::AnswerPart& part,
                                        bool with_headroom);

}  // namespace perceptd::session
