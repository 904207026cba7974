// `perceptctl ledger`: what is kept of a user on this device, shown or erased.
// Owns nothing.
// Never erases without being told to.
#pragma once

#include <string>

namespace perceptctl {

struct LedgerOptions {
    std::string bus = "system";  ///< "system", "session" or a D-Bus address
    bool json = false;
    bool everybody = false;  ///< needs org.perceptd1.manage
    bool erases = false;
};

/// Prints to standard output and gives back the exit status. Throws std::runtime_error of one sentence.
int show_or_erase_ledger(const LedgerOptions& options);

}  // namespace perceptctl
