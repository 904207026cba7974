// The C interface over Connection: nothing but argument checks and exceptions turned into statuses.
#include "percept/percept.h"

#include <memory>
#include <new>
#include <string>

#include "client.hpp"
#include "failure.hpp"

struct percept_client {
    percept::Connection client;
};

namespace {

thread_local std::string connect_error;

template <typename Open>
int connect_with(percept_client** client, Open&& open) {
    try {
        if (client == nullptr) {
            throw percept::Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "percept_connect needs a place for the client");
        }
        *client = nullptr;
        *client = new percept_client{percept::Connection(open())};
        return PERCEPT_OK;
    } catch (const percept::Failure& failure) {
        connect_error = failure.what();
        return failure.status();
    } catch (const std::exception& error) {
        connect_error = error.what();
        return PERCEPT_ERROR_SYSTEM;
    }
}

template <typename Call>
int call_on(percept_client* client, Call&& call) {
    if (client == nullptr) {
        connect_error = "the client is NULL";
        return PERCEPT_ERROR_INVALID_ARGUMENT;
    }
    try {
        return call(client->client);
    } catch (const percept::Failure& failure) {
        client->client.note(failure.status(), failure.what());
        return failure.status();
    } catch (const std::exception& error) {
        client->client.note(PERCEPT_ERROR_SYSTEM, error.what());
        return PERCEPT_ERROR_SYSTEM;
    }
}

}  // namespace

extern "C" {

int percept_connect(const char* socket_path, percept_client** client) {
    return connect_with(client, [socket_path] {
        return percept::Channel::connect(socket_path == nullptr ? PERCEPT_DEFAULT_SOCKET : socket_path);
    });
}

int percept_connect_fd(int channel_fd, percept_client** client) {
    percept::UniqueFd fd(channel_fd);
    return connect_with(client, [&fd] { return percept::Channel(std::move(fd)); });
}

void percept_close(percept_client* client) {
    delete client;
}

int percept_subscribe(percept_client* client, uint32_t sensors, int timeout_ms) {
    return call_on(client, [=](percept::Connection& session) { return session.subscribe(sensors, timeout_ms); });
}

int percept_next_window(percept_client* client, int timeout_ms, const percept_window** window) {
    return call_on(client, [=](percept::Connection& session) {
        if (window == nullptr) {
            throw percept::Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "percept_next_window needs a place for the window");
        }
        return session.next_window(timeout_ms, *window);
    });
}

int percept_window_is_valid(const percept_client* client, const percept_window* window) {
    return client != nullptr && client->client.is_valid(window) ? 1 : 0;
}

int percept_release(percept_client* client, const percept_window* window) {
    return call_on(client, [=](percept::Connection& session) {
        session.release(window);
        return static_cast<int>(PERCEPT_OK);
    });
}

int percept_ask(percept_client* client, const percept_question* question, int timeout_ms, percept_answer* answer) {
    return call_on(client, [=](percept::Connection& session) {
        if (question == nullptr || answer == nullptr) {
            throw percept::Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "percept_ask needs a question and a place for it");
        }
        return session.ask(*question, timeout_ms, *answer);
    });
}

int percept_resume(percept_client* client, uint64_t generation_id, uint64_t next_number, int timeout_ms,
                   percept_answer* answer) {
    return call_on(client, [=](percept::Connection& session) {
        if (answer == nullptr) {
            throw percept::Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "percept_resume needs a place for the answer");
        }
        return session.resume(generation_id, next_number, timeout_ms, *answer);
    });
}

int percept_next_part(percept_client* client, int timeout_ms, const percept_part** part) {
    return call_on(client, [=](percept::Connection& session) {
        if (part == nullptr) {
            throw percept::Failure(PERCEPT_ERROR_INVALID_ARGUMENT, "percept_next_part needs a place for the part");
        }
        return session.next_part(timeout_ms, *part);
    });
}

int percept_stop(percept_client* client, uint64_t generation_id) {
    return call_on(client, [=](percept::Connection& session) {
        session.stop(generation_id);
        return static_cast<int>(PERCEPT_OK);
    });
}

int percept_fd(const percept_client* client) {
    return client == nullptr ? -1 : client->client.fd();
}

uint32_t percept_windows_in_flight_max(const percept_client* client) {
    return client == nullptr ? 0 : client->client.windows_in_flight_max();
}

const char* percept_heap(const percept_client* client) {
    return client == nullptr ? "none" : client->client.heap().c_str();
}

percept_notice percept_last_notice(const percept_client* client) {
    return client == nullptr ? percept_notice{0, "", 0, 0} : client->client.last_notice();
}

int percept_end(percept_client* client, int timeout_ms) {
    return call_on(client, [=](percept::Connection& session) { return session.end(timeout_ms); });
}

percept_statistics percept_last_statistics(const percept_client* client) {
    return client == nullptr ? percept_statistics{} : client->client.last_statistics();
}

const char* percept_last_error(const percept_client* client) {
    return client == nullptr ? connect_error.c_str() : client->client.last_error().c_str();
}

const char* percept_version(void) {
    return PERCEPT_VERSION;
}
}
