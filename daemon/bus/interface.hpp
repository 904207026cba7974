// One interface of a bus object: what differs between sdbus-c++ 1.2 and 2 in declaring members is here alone.
// Borrows the object.
// Never registers a handler that is not guarded.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <string>
#include <utility>
#include <vector>

#include "bus/errors.hpp"

namespace perceptd::bus {

inline constexpr const char* kBusName = "org.perceptd1";
inline constexpr const char* kRootPath = "/org/perceptd1";

/// org.freedesktop.DBus.Property.EmitsChangedSignal.
enum class Emits : std::uint8_t { Change, Nothing, Const };

/// Members are live after IObject::finishRegistration(). Nothing of it needs to outlive the declarations.
class Interface {
public:
    Interface(sdbus::IObject& object, std::string name) : object_(object), name_(std::move(name)) {}

    /// A read-only property; its type is the getter's.
    template <typename Getter>
    void property(const std::string& name, Emits emits, Getter getter) {
        sdbus::Flags flags;
        flags.set(emits == Emits::Change  ? sdbus::Flags::EMITS_CHANGE_SIGNAL
                  : emits == Emits::Const ? sdbus::Flags::CONST_PROPERTY_VALUE
                                          : sdbus::Flags::EMITS_NO_SIGNAL);
        object_.registerProperty(
            name_, name, sdbus::signature_of<decltype(getter())>::str(),
            [getter](sdbus::PropertyGetReply& reply) { guard_property([&] { reply << getter(); }); }, flags);
    }

    struct Arguments {
        std::string types;
        std::vector<std::string> names;
    };

    /// A method; `handler` gets the call and replies to it, now or later. What it throws is the reply.
    template <typename Handler>
    void method(const std::string& name, const Arguments& in, const Arguments& out, Handler handler) {
        object_.registerMethod(name_, name, in.types, in.names, out.types, out.names,
                               [handler](sdbus::MethodCall call) { guard_call(call, [&] { handler(call); }); });
    }

    void signal(const std::string& name, const Arguments& arguments) {
        object_.registerSignal(name_, name, arguments.types, arguments.names);
    }

private:
    sdbus::IObject& object_;
    std::string name_;
};

}  // namespace perceptd::bus
