#include "session/quota.hpp"

#include <string>

#include "base/contract.hpp"
#include "base/error.hpp"

namespace perceptd::session {
namespace {

[[noreturn]] void refuse(const std::string& reason, std::uint32_t limit, std::uint32_t used) {
    Error error(ErrorCode::QuotaExceeded, reason);
    error.limit = limit;
    error.used = used;
    throw error;
}

}  // namespace

Quota::Claim Quota::open_session(uid_t uid) {
    if (session_count_ >= limits_.sessions_total) {
        refuse("the service has as many sessions as it may; try again when another client has closed one",
               limits_.sessions_total, session_count_);
    }
    Use& use = use_by_uid_[uid];
    if (uid != limits_.owner_uid && use.session_count >= limits_.sessions_per_uid) {
        refuse("user " + std::to_string(uid) + " has as many sessions as it may; close one first",
               limits_.sessions_per_uid, use.session_count);
    }
    ++use.session_count;
    ++session_count_;
    return Claim(this, uid);
}

Quota::Claim& Quota::Claim::operator=(Claim&& other) noexcept {
    if (this != &other) {
        end();
        quota_ = std::exchange(other.quota_, nullptr);
        uid_ = other.uid_;
        window_count_ = std::exchange(other.window_count_, 0);
    }
    return *this;
}

bool Quota::Claim::take_window() noexcept {
    if (quota_ == nullptr) {
        return false;
    }
    Use& use = quota_->use_by_uid_.find(uid_)->second;
    if (window_count_ >= quota_->limits_.windows_per_session || use.window_count >= quota_->limits_.windows_per_uid) {
        return false;
    }
    ++window_count_;
    ++use.window_count;
    return true;
}

void Quota::Claim::give_window() noexcept {
    PERCEPTD_ASSERT(quota_ != nullptr && window_count_ > 0);
    --window_count_;
    --quota_->use_by_uid_.find(uid_)->second.window_count;
}

void Quota::Claim::end() noexcept {
    Quota* quota = std::exchange(quota_, nullptr);
    if (quota == nullptr) {
        return;
    }
    const auto found = quota->use_by_uid_.find(uid_);
    PERCEPTD_ASSERT(found != quota->use_by_uid_.end());
    found->second.window_count -= std::exchange(window_count_, 0);
    --quota->session_count_;
    if (--found->second.session_count == 0) {
        quota->use_by_uid_.erase(found);
    }
}

}  // namespace perceptd::session
