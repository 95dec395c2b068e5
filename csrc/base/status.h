// Status and Result<T>: how every function that a caller, a file or a peer can make fail says so.
//
// The codes are gRPC's numbers, so the service casts them. Which to use when: docs/errors.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "csrc/base/check.h"

namespace hir {

enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,  // The caller's fault; the same call will fail again.
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,   // A named limit was reached; the message says which and its value.
  kFailedPrecondition = 9,  // Right call, wrong state: a freed handle, a closed session.
  kAborted = 10,            // The run was poisoned by another failure.
  kOutOfRange = 11,
  kUnimplemented = 12,  // Not built in; nothing was queued.
  kInternal = 13,       // Our bug, found late.
  kUnavailable = 14,    // A rank, planner or daemon went away; a retry may succeed.
  kDataLoss = 15,
  kUnauthenticated = 16,
};

std::string_view CodeName(Code code);  // "INVALID_ARGUMENT"

// A code and a message; OK is a null pointer, so success is free. Immutable, cheap to copy.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // REQUIRES: code != kOk.
  Status(Code code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ == nullptr ? Code::kOk : rep_->code; }
  std::string_view message() const;  // Empty when ok.
  std::string ToString() const;      // "OK" or "INVALID_ARGUMENT: message"

  // The same code with `context` and ": " put in front of the message.
  Status WithContext(std::string_view context) const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

inline Status InvalidArgument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
inline Status Unimplemented(std::string message) { return {Code::kUnimplemented, std::move(message)}; }
inline Status ResourceExhausted(std::string message) { return {Code::kResourceExhausted, std::move(message)}; }
inline Status Internal(std::string message) { return {Code::kInternal, std::move(message)}; }
inline Status Unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }

template <typename T>
class Result;

// What a Result<T> can be made of beside a T and a Status.
template <typename U, typename T>
concept ConvertsTo =
    std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, T> &&
    !std::is_same_v<std::remove_cvref_t<U>, Status> && !std::is_same_v<std::remove_cvref_t<U>, Result<T>>;

// A T or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  // NOLINTBEGIN: implicit, so that `return status;` and `return value;` work.
  Result(Status status) : value_(std::move(status)) { HIR_CHECK(!std::get<Status>(value_).ok()); }
  Result(T value) : value_(std::move(value)) {}
  template <ConvertsTo<T> U>
  Result(U&& value) : value_(std::in_place_index<1>, std::forward<U>(value)) {}
  // NOLINTEND

  bool ok() const { return value_.index() == 1; }
  Status status() const { return ok() ? Status() : std::get<0>(value_); }

  // REQUIRES: ok().
  T& operator*() & { return Get(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Get(); }
  T&& operator*() && { return std::move(Get()); }
  T* operator->() { return &Get(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Get(); }

 private:
  T& Get() {
    HIR_CHECK(ok());
    return std::get<1>(value_);
  }
  std::variant<Status, T> value_;
};

}  // namespace hir

#define HIR_CONCAT_INNER(a, b) a##b
#define HIR_CONCAT(a, b) HIR_CONCAT_INNER(a, b)

// Returns from the calling function when `expression`, a Status, is not OK.
#define HIR_TRY(expression)                                            \
  do {                                                                 \
    if (::hir::Status hir_status_ = (expression); !hir_status_.ok()) { \
      return hir_status_;                                              \
    }                                                                  \
  } while (false)

// HIR_ASSIGN(auto x, F()): declares x from the Result of F(), or returns its Status.
#define HIR_ASSIGN(declaration, expression) HIR_ASSIGN_INNER(HIR_CONCAT(hir_result_, __LINE__), declaration, expression)
#define HIR_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                             \
  if (!result.ok()) {                                     \
    return result.status();                               \
  }                                                       \
  declaration = *std::move(result)
