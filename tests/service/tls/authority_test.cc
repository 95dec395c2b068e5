// Goal: what an authority makes passes the checks of files, and each thing that can be wrong with a file is told apart,
// with the file's name and the remedy.
// Method: certificates of authorities of this process, in a folder of the test.
#include "service/tls/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "csrc/base/check.h"

namespace hir::service {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Tls : public testing::Test {
 protected:
  Tls() {
    std::string folder = (std::filesystem::temp_directory_path() / "hostir-test-XXXXXX").string();
    HIR_CHECK(mkdtemp(folder.data()) != nullptr);
    folder_ = folder;
    auto made = Authority::Make("test authority", 10);
    HIR_CHECK(made.ok());
    authority_ = *std::move(made);
  }
  ~Tls() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  Issued Issue(const std::vector<std::string>& names, TlsSide side, int64_t days = 10) const {
    const Result<Issued> issued = authority_->Issue(names, side, days);
    HIR_CHECK(issued.ok());
    return *issued;
  }

  std::string folder_;
  std::unique_ptr<Authority> authority_;
};

TEST_F(Tls, WhatAnAuthorityMakesIsGood) {
  const Issued server = Issue({"localhost", "127.0.0.1", "::1"}, TlsSide::kServer);
  const Issued client = Issue({"spiffe://here/alice"}, TlsSide::kClient);
  const std::string ca = Write("ca.pem", authority_->own().cert);
  const TlsFiles of_server = {ca, Write("server.pem", server.cert), Write("server.key", server.key)};
  const TlsFiles of_client = {ca, Write("client.pem", client.cert), Write("client.key", client.key)};
  EXPECT_EQ(CheckTls(of_server, TlsSide::kServer).ToString(), "OK");
  EXPECT_EQ(CheckTls(of_client, TlsSide::kClient).ToString(), "OK");
  EXPECT_THAT(DescribeCertificate(of_client.cert),
              StartsWith("CN=spiffe://here/alice, signed by CN=test authority, valid until "));
}

TEST_F(Tls, NamesThatCertificatesCannotHold) {
  for (const std::string& name : {std::string(), std::string("a,DNS:b"), std::string("a b"), std::string(65, 'a')}) {
    EXPECT_THAT(authority_->Issue({&name, 1}, TlsSide::kClient, 10).status().ToString(),
                HasSubstr("want 1 to 64 of letters, digits and -._:/@*"))
        << name;
  }
  EXPECT_FALSE(authority_->Issue({}, TlsSide::kClient, 10).ok());
}

TEST_F(Tls, WhatIsWrongWithACertificate) {
  const Issued server = Issue({"localhost"}, TlsSide::kServer);
  const auto wrong = [](const std::string& path, TlsSide side = TlsSide::kServer) {
    return CheckCertificate(path, side).ToString();
  };
  const std::string old = Write("old.pem", Issue({"localhost"}, TlsSide::kServer, -1).cert);
  EXPECT_THAT(wrong(old), AllOf(HasSubstr(old + " has expired at "), HasSubstr("have a new one signed")));
  const std::string good = Write("good.pem", server.cert);
  EXPECT_EQ(wrong(good), "OK");
  EXPECT_THAT(wrong(good, TlsSide::kClient), HasSubstr("is no certificate for a client (its key usage says so)"));
  EXPECT_THAT(wrong(Write("x.key", server.key)),
              HasSubstr("holds no certificate: want PEM, which begins with -----BEGIN "
                        "CERTIFICATE-----; it holds a private key"));
  EXPECT_THAT(wrong(folder_ + "/none"), HasSubstr("/none cannot be read: No such file or directory: name a file"));
  EXPECT_THAT(wrong(folder_), HasSubstr(" is no file"));
  EXPECT_THAT(wrong(Write("ca.pem", authority_->own().cert)), HasSubstr("is no certificate for a server"));
  EXPECT_THAT(CheckCa(good).ToString(), HasSubstr("holds the certificate of CN=localhost, which is no authority"));
}

TEST_F(Tls, WhatIsWrongWithAKey) {
  const Issued one = Issue({"localhost"}, TlsSide::kServer);
  const std::string cert = Write("one.pem", one.cert);
  const auto wrong = [&](const std::string& path) { return CheckKey(path, cert).ToString(); };
  EXPECT_EQ(wrong(Write("one.key", one.key)), "OK");
  EXPECT_THAT(wrong(Write("shared.key", one.key, 0640)),
              AllOf(HasSubstr("shared.key can be read or written by others (mode 0640)"), HasSubstr("chmod 600 ")));
  EXPECT_THAT(wrong(Write("world.key", one.key, 0604)), HasSubstr("(mode 0604)"));
  EXPECT_THAT(
      wrong(Write("two.key", Issue({"localhost"}, TlsSide::kServer).key)),
      HasSubstr("two.key is not the key of the certificate " + cert + ": name the two that were made together"));
  EXPECT_THAT(wrong(Write("cert.key", one.cert)), HasSubstr("holds no private key that can be used"));
}

// As a cluster mounts its secrets for who is not root: root's, and lent to a group.
TEST_F(Tls, AKeyOfRootsMayBeLentToAGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a file of root's";
  constexpr gid_t kGroup = 65534;
  constexpr uid_t kUser = 65534;
  const Issued one = Issue({"localhost"}, TlsSide::kServer);
  const std::string cert = Write("one.pem", one.cert, 0644);
  const std::string lent = Write("lent.key", one.key, 0440);
  const std::string written = Write("written.key", one.key, 0460);
  const std::string world = Write("world.key", one.key, 0444);
  for (const std::string& key : {lent, written, world}) ASSERT_EQ(chown(key.c_str(), 0, kGroup), 0);
  chmod(folder_.c_str(), 0711);
  EXPECT_THAT(CheckKey(lent, cert).ToString(), HasSubstr("(mode 0440)")) << "root needs no group";
  ASSERT_TRUE(setegid(kGroup) == 0 && seteuid(kUser) == 0);
  const std::string as_user[] = {CheckKey(lent, cert).ToString(), CheckKey(written, cert).ToString(),
                                 CheckKey(world, cert).ToString()};
  ASSERT_TRUE(seteuid(0) == 0 && setegid(0) == 0);
  EXPECT_EQ(as_user[0], "OK");
  EXPECT_THAT(as_user[1], HasSubstr("(mode 0460)"));
  EXPECT_THAT(as_user[2], HasSubstr("(mode 0444)"));
}

}  // namespace
}  // namespace hir::service
