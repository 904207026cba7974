// /org/perceptd1/ledger: what is kept of its users, as proto/org.perceptd1.Ledger.xml describes it.
// Owns the registration on the bus and the calls that wait for an answer.
// Never shows one user another's rows unless polkit grants it, and never waits for the disk.
#pragma once

#include <sdbus-c++/sdbus-c++.h>

#include <functional>
#include <memory>

#include "bus/caller_lookup.hpp"
#include "bus/connection.hpp"
#include "session/authority.hpp"
#include "store/store.hpp"

namespace perceptd::bus {

/// Thread-bound (main thread). Everything given to it must outlive it.
class LedgerObject {
public:
    LedgerObject(Connection& connection, CallerLookup& lookup, session::Authority& authority, store::Store& store);

private:
    /// On the store's thread: what is asked of whom; gives back how to answer, on the main thread.
    using Answer = std::function<void(sdbus::MethodReply&)>;
    using Work = std::function<Answer(store::StoreTables&, store::LedgerOwner)>;

    /// Looks up the caller, asks polkit when it wants everybody's, works, answers.
    void serve(const sdbus::MethodCall& call, bool wants_everybody, Work work);
    void work_for(const sdbus::MethodCall& call, store::LedgerOwner owner, const Work& work);

    Connection& connection_;
    CallerLookup& lookup_;
    session::Authority& authority_;
    store::Store& store_;
    std::size_t pending_count_ = 0;
    std::shared_ptr<char> alive_ = std::make_shared<char>();  ///< answers may outlive it
    std::unique_ptr<sdbus::IObject> object_;
};

}  // namespace perceptd::bus
