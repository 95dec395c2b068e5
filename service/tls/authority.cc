#include "service/tls/authority.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/tls/openssl.h"

namespace hir::service {
namespace {

using base::Cat;

constexpr size_t kNameBytesMax = 64;      // Of a common name: X.520's ub-common-name.
constexpr int64_t kSecondsBefore = 3600;  // Clocks of other machines may be behind this one's.

Status Failed(std::string_view what) { return Internal(Cat("openssl: ", what, ": ", OpensslError())); }

std::string Pem(BIO* out) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  return {data, static_cast<size_t>(size)};
}

// Characters of a name: no character that ends it in the syntax of extensions, or that a reader would not see.
Status CheckName(const std::string& name) {
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-._:/@*").find(c) != std::string_view::npos;
  });
  if (plain && !name.empty() && name.size() <= kNameBytesMax) return {};
  return InvalidArgument(Cat("name ", base::Quoted(name), ": want 1 to ", kNameBytesMax,
                             " of letters, digits and -._:/@*: an IP address, a URI, or a name"));
}

// "IP:127.0.0.1", "URI:spiffe://here/alice", "DNS:alice".
std::string AlternativeName(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> bytes = {};
  if (inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 || inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1)
    return Cat("IP:", name);
  return Cat(name.find("://") != std::string::npos ? "URI:" : "DNS:", name);
}

Status AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context = {};
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Openssl<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) return Failed(value);
  return {};
}

Status SetSerial(X509* certificate) {
  std::array<unsigned char, 16> bytes = {};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) return Failed("random bytes");
  bytes[0] &= 0x7F;  // It is a positive number.
  BIGNUM* number = BN_bin2bn(bytes.data(), bytes.size(), nullptr);
  const bool set = number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set ? Status() : Failed("serial number");
}

class OpensslAuthority final : public Authority {
 public:
  explicit OpensslAuthority(std::string name) : name_(std::move(name)) {}

  Status Start(int64_t days) {
    HIR_ASSIGN(own_, Sign(name_, days,
                          {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                           {NID_key_usage, "critical,keyCertSign,cRLSign"},
                           {NID_subject_key_identifier, "hash"}}));
    return {};
  }
  const Issued& own() const override { return own_; }

  Result<Issued> Issue(std::span<const std::string> names, TlsSide side, int64_t days) const override {
    if (names.empty()) return InvalidArgument("a certificate without a name");
    std::vector<std::string> alternatives;
    for (const std::string& name : names) {
      HIR_TRY(CheckName(name));
      alternatives.push_back(AlternativeName(name));
    }
    return Sign(names.front(), days,
                {{NID_basic_constraints, "critical,CA:FALSE"},
                 {NID_key_usage, "critical,digitalSignature"},
                 {NID_ext_key_usage, side == TlsSide::kNode     ? "serverAuth,clientAuth"
                                     : side == TlsSide::kServer ? "serverAuth"
                                                                : "clientAuth"},
                 {NID_authority_key_identifier, "keyid"},
                 {NID_subject_alt_name, base::Join(alternatives, ",")}});
  }

 private:
  using Extensions = std::vector<std::pair<int, std::string>>;

  // A new key and its certificate. The first is the authority's own.
  Result<Issued> Sign(const std::string& subject, int64_t days, const Extensions& extensions) const {
    Openssl<EVP_PKEY> key(EVP_EC_gen("P-256"));
    Openssl<X509> certificate(X509_new());
    if (key == nullptr || certificate == nullptr) return Failed("key");
    X509_set_version(certificate.get(), X509_VERSION_3);
    HIR_TRY(SetSerial(certificate.get()));
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kSecondsBefore);
    X509_time_adj_ex(X509_getm_notAfter(certificate.get()), static_cast<int>(days), 0, nullptr);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(subject.data()), static_cast<int>(subject.size()),
                               -1, 0);
    X509* issuer = certificate_ == nullptr ? certificate.get() : certificate_.get();
    X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer));
    for (const auto& [nid, value] : extensions) HIR_TRY(AddExtension(certificate.get(), issuer, nid, value));
    if (X509_sign(certificate.get(), key_ == nullptr ? key.get() : key_.get(), EVP_sha256()) == 0)
      return Failed("signature");
    const Openssl<BIO> cert_out(BIO_new(BIO_s_mem())), key_out(BIO_new(BIO_s_mem()));
    if (PEM_write_bio_X509(cert_out.get(), certificate.get()) != 1 ||
        PEM_write_bio_PrivateKey(key_out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
      return Failed("PEM");
    }
    Issued issued = {Pem(cert_out.get()), Pem(key_out.get())};
    if (key_ == nullptr) {
      key_ = std::move(key);
      certificate_ = std::move(certificate);
    }
    return issued;
  }

  const std::string name_;
  Issued own_;
  mutable Openssl<EVP_PKEY> key_;  // The authority's own; null until it has signed itself.
  mutable Openssl<X509> certificate_;
};

}  // namespace

Result<std::unique_ptr<Authority>> Authority::Make(const std::string& name, int64_t days) {
  auto authority = std::make_unique<OpensslAuthority>(name);
  HIR_TRY(authority->Start(days));
  return std::unique_ptr<Authority>(std::move(authority));
}

}  // namespace hir::service
