// Goal: an address that clients could not reach is refused when it is read.
#include "service/os/address.h"

#include <gtest/gtest.h>

#include <string>

namespace hir::service {
namespace {

TEST(ParseAddress, RefusesWhatGrpcReadsAsSomethingElse) {
  for (const char c : std::string("#?,%")) {
    const std::string path = std::string("/run/a") + c + "41b/socket";
    EXPECT_EQ(ParseAddress("unix:" + path).status().ToString(),
              "INVALID_ARGUMENT: the path has \"" + std::string(1, c) +
                  "\", which gRPC reads as no part of a path: name another");
  }
  const Result<Address> plain = ParseAddress("unix:/run/a-b_c.d~e+f=g@h:i!j/socket");
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_EQ(plain->ToString(), "unix:/run/a-b_c.d~e+f=g@h:i!j/socket");
}

}  // namespace
}  // namespace hir::service
