// A connection of libsystemd's to the bus at an address.
// Owned by the caller, who gives it to sd_bus_flush_close_unref.
// Never the machine's own bus.
#pragma once

#include <systemd/sd-bus.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace perceptd::test {

inline void check_bus(int result) {
    if (result < 0) {
        throw std::runtime_error(std::string("bus: ") + std::strerror(-result));
    }
}

inline sd_bus* open_bus(const std::string& address) {
    sd_bus* bus = nullptr;
    check_bus(sd_bus_new(&bus));
    check_bus(sd_bus_set_address(bus, address.c_str()));
    check_bus(sd_bus_set_bus_client(bus, 1));
    check_bus(sd_bus_start(bus));
    return bus;
}

}  // namespace perceptd::test
