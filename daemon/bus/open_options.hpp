// The options of OpenSession, read from a message and checked.
// Owns nothing.
// Never passes on a key or a value that proto/org.perceptd1.Manager.xml does not name.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include "session/registry.hpp"

namespace perceptd::bus {

/// Reads a{sv} from `call`. `granted` of the result are the sensors asked for. Throws Error(InvalidArgument) that names
/// the key.
session::Registry::OpenOptions read_open_options(sdbus::MethodCall call);

}  // namespace perceptd::bus
