// A client's whole conversation: packets with up to nine descriptors, windows between them. Whatever it says, every
// slot, sensor and place in the quota is back when the session is gone.
#include <cstdlib>

#include "base/log.hpp"
#include "packets.hpp"
#include "session_fixture.hpp"

namespace {

using namespace perceptd;
using namespace perceptd::session;

void require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

/// The high bits of a packet's first byte say what happens besides the packet.
void play(test::Stage& stage, std::span<const std::uint8_t> bytes) {
    std::uint64_t window_id = 0;
    while (!bytes.empty() && stage.session->state() != Session::State::Closed) {
        const std::uint8_t act = bytes.front();
        bytes = bytes.subspan(1);
        const auto packet = fuzz::next_packet(bytes);
        const std::string text(packet.begin(), packet.end());
        if ((act & 0xf0) == 0xf0) {
            const std::vector<int> fds(act & 0x0f, STDERR_FILENO);
            fds.empty() ? stage.client->send_bytes(text) : stage.client->send_fds(text, fds);
        } else {
            stage.client->send_bytes(text);
        }
        stage.session->handle_ready();
        if ((act & 1) != 0) {
            stage.session->deliver(stage.window(++window_id));
        }
        if ((act & 2) != 0) {
            stage.client->read();
        }
        if ((act & 4) != 0) {
            stage.session->revoke_oldest();
        }
        if ((act & 8) != 0) {
            stage.session->notify(NoticeKind::SensorLost, "fuzz");
        }
        require(stage.session->windows_in_flight() <= stage.session->windows_in_flight_max());
        require(stage.camera.free_count() + stage.session->windows_in_flight() >= stage.camera.slot_count());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    log::set_level(log::Level::Error);
    test::Stage stage;
    play(stage, {data, size});
    stage.client->close();
    for (int i = 0; i < 64 && stage.session->state() != Session::State::Closed; ++i) {
        stage.session->handle_ready();
    }
    require(stage.session->state() == Session::State::Closed);
    require(stage.feed.attached_count == 0);
    require(stage.camera.free_count() == stage.camera.slot_count());
    stage.session.reset();
    require(stage.quota.session_count() == 0);
    return 0;
}
