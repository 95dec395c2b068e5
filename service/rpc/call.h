// Call: a request that is answered once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "csrc/base/status.h"
#include "service/store/tensor.h"

namespace hir::service {

// Thread-safe.
class Call {
 public:
  virtual ~Call() = default;

  // True for the first caller: it may write the reply, and must call End. Who gets false must not touch the reply.
  virtual bool Claim() = 0;
  // REQUIRES: the caller has claimed the call.
  virtual void End(const Status& status) = 0;
  void ClaimAndEnd(const Status& status) {
    if (Claim()) End(status);
  }
  // `undo` runs when nobody will ever know what the answer names. REQUIRES: the caller has claimed the call, and not
  // ended it.
  virtual void IfUnheard(std::function<void()> undo) = 0;

  virtual int64_t id() const = 0;  // What the log knows it by.
  // The client's trace context (csrc/base/traceparent.h); empty: there is none.
  virtual const std::string& trace() const = 0;
  // The number of the run that it asked for, unless it is over.
  virtual void LearnRun(int64_t run) = 0;
  // End when the call is over.
  virtual Subscriptions& subscriptions() = 0;
};

}  // namespace hir::service
