// The rendezvous of threads: values are written once; a reader waits for them, but not for ever.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "multidevice/rendezvous/memory.h"

namespace hir::comm {
namespace {

TEST(MemoryRendezvous, AReaderWaitsForTheValue) {
  MemoryRendezvous rendezvous;
  Result<std::string> got = Status(Code::kUnknown, "not read");
  std::thread reader([&] { got = rendezvous.Get("g1/rank/0", std::chrono::seconds(20)); });
  ASSERT_TRUE(rendezvous.Publish("g1/rank/0", std::string_view("a\0b", 3)).ok());
  reader.join();
  EXPECT_EQ(*got, std::string("a\0b", 3));
}

TEST(MemoryRendezvous, RefusesWhatItCannotKeep) {
  MemoryRendezvous rendezvous;
  EXPECT_EQ(rendezvous.Get("k", std::chrono::milliseconds(1)).status().ToString(),
            "DEADLINE_EXCEEDED: rendezvous: k was not published in 0.001 s");
  EXPECT_TRUE(rendezvous.Publish("k", "v").ok());
  EXPECT_TRUE(rendezvous.Publish("k", "v").ok());
  EXPECT_EQ(rendezvous.Publish("k", "w").ToString(), "ALREADY_EXISTS: rendezvous: k holds other bytes already");
  EXPECT_EQ(rendezvous.Publish("big", std::string(kRendezvousBytesMax + 1, 'x')).ToString(),
            "RESOURCE_EXHAUSTED: rendezvous: big has 65537 bytes, limit rendezvous_bytes_max: 65536");
}

}  // namespace
}  // namespace hir::comm
