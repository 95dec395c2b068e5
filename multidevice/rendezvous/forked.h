// The rendezvous of processes that are forked from one: memory that they share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "multidevice/rendezvous/rendezvous.h"

namespace hir::comm {

// Made before the processes are, which then all use it; each of them may destroy its own. A process
// that dies leaves what it has published.
//
// A value published under one key by two ranks at once must be the same, as with mpi/.
class ForkedRendezvous final : public Rendezvous {
 public:
  static constexpr int64_t kValuesMax = 4096;
  static constexpr int64_t kKeyBytesMax = 255;

  ForkedRendezvous();
  ~ForkedRendezvous() override;
  ForkedRendezvous(const ForkedRendezvous&) = delete;
  ForkedRendezvous& operator=(const ForkedRendezvous&) = delete;

  Status Publish(std::string_view key, std::string_view bytes) override;
  Result<std::string> Get(std::string_view key, base::Nanos timeout) override;

 private:
  struct Memory;
  // The value of `key`, if it is there.
  std::optional<std::string_view> Find(std::string_view key) const;

  Memory* const memory_;
};

}  // namespace hir::comm
