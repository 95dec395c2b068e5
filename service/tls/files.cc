#include "service/tls/files.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "csrc/base/fd.h"
#include "csrc/base/text.h"
#include "service/tls/openssl.h"

namespace hir::service {
namespace {

using base::Cat;

constexpr off_t kBytesMax = off_t{1} << 20;  // Of one file: a bundle of all public authorities has a quarter of it.

// Whether others than who runs this, and root, are kept from the file. Secrets that are mounted belong to root, and are
// lent by a group.
bool IsSecret(const struct stat& info) {
  if (info.st_uid == 0 && geteuid() != 0) return (info.st_mode & 037) == 0;
  return (info.st_mode & 077) == 0;
}

// The bytes of the file. `secret`: nobody but its owner may read it, and of root's files a group.
Result<std::string> ReadFile(const std::string& path, bool secret) {
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const int error = errno;
    return Status(error == ENOENT ? Code::kNotFound : Code::kPermissionDenied,
                  Cat(path, " cannot be read: ", std::strerror(error),
                      error == ENOENT ? ": name a file that is there (hostir certs makes some for trying out)"
                                      : ": it must be readable by the user who runs this"));
  }
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return InvalidArgument(Cat(path, " is no file"));
  if (secret && !IsSecret(info)) {
    return Status(Code::kPermissionDenied, Cat(path, " can be read or written by others (mode 0",
                                               (info.st_mode >> 6) & 7, (info.st_mode >> 3) & 7, info.st_mode & 7,
                                               "), and who has the key can pass for its owner: chmod 600 ", path));
  }
  if (info.st_size > kBytesMax)
    return InvalidArgument(Cat(path, " has ", info.st_size, " bytes, more than the ", kBytesMax, " of a PEM file"));
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t got = read(fd.get(), text.data(), text.size());
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

Openssl<BIO> Reader(const std::string& text) {
  return Openssl<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The certificates of a PEM text, in order.
std::vector<Openssl<X509>> CertificatesIn(const std::string& text) {
  const Openssl<BIO> reader = Reader(text);
  std::vector<Openssl<X509>> all;
  while (X509* next = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) all.emplace_back(next);
  ERR_clear_error();  // It ends with one that says that no other follows.
  return all;
}

Result<std::vector<Openssl<X509>>> ReadCertificates(const std::string& path) {
  HIR_ASSIGN(const std::string text, ReadFile(path, /*secret=*/false));
  std::vector<Openssl<X509>> all = CertificatesIn(text);
  if (all.empty()) {
    return InvalidArgument(Cat(path, " holds no certificate: want PEM, which begins with -----BEGIN CERTIFICATE-----",
                               text.find("PRIVATE KEY") != std::string::npos ? "; it holds a private key" : ""));
  }
  return all;
}

std::string TextOf(const ASN1_TIME* time) {
  const Openssl<BIO> out(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(out.get(), time);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<size_t>(size)};
}

std::string TextOf(const X509_NAME* name) {
  const Openssl<BIO> out(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(out.get(), name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<size_t>(size)};
}

Status CheckTime(const std::string& path, const X509* certificate) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) <= 0) {
    return InvalidArgument(
        Cat(path, " has expired at ", TextOf(X509_get0_notAfter(certificate)), ": have a new one signed"));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return InvalidArgument(Cat(path, " is not valid before ", TextOf(X509_get0_notBefore(certificate)),
                               ": wait, or set the clock of this machine"));
  }
  return {};
}

bool IsFor(X509* certificate, int purpose) { return X509_check_purpose(certificate, purpose, 0) == 1; }

bool HasName(X509* certificate) {
  const Openssl<GENERAL_NAMES> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  return names != nullptr && sk_GENERAL_NAME_num(names.get()) > 0;
}

}  // namespace

std::string OpensslError() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "" : reason;
}

Status CheckCa(const std::string& path) {
  HIR_ASSIGN(const auto all, ReadCertificates(path));
  for (const Openssl<X509>& each : all) {
    HIR_TRY(CheckTime(path, each.get()));
    if (X509_check_ca(each.get()) == 0) {
      return InvalidArgument(Cat(path, " holds the certificate of ", TextOf(X509_get_subject_name(each.get())),
                                 ", which is no authority: name the file of the one that signed the others'"));
    }
  }
  return {};
}

Status CheckCertificate(const std::string& path, TlsSide side) {
  HIR_ASSIGN(const auto all, ReadCertificates(path));
  X509* own = all.front().get();
  HIR_TRY(CheckTime(path, own));
  const bool is_server = side != TlsSide::kClient;
  const bool is_client = side != TlsSide::kServer;
  if ((is_server && !IsFor(own, X509_PURPOSE_SSL_SERVER)) || (is_client && !IsFor(own, X509_PURPOSE_SSL_CLIENT))) {
    return InvalidArgument(Cat(path, " is no certificate for ",
                               side == TlsSide::kNode ? "a node, which is server and client"
                               : is_server            ? "a server"
                                                      : "a client",
                               " (its key usage says so): have one signed that is"));
  }
  if (is_server && !HasName(own)) {
    return InvalidArgument(Cat(path,
                               " names no host, and clients check that it names theirs: have one signed with the "
                               "daemon's names and addresses as subject alternative names"));
  }
  return {};
}

Status CheckKey(const std::string& path, const std::string& cert) {
  HIR_ASSIGN(const std::string text, ReadFile(path, /*secret=*/true));
  const Openssl<BIO> reader = Reader(text);
  // Without a passphrase: nobody is there to be asked.
  const Openssl<EVP_PKEY> key(PEM_read_bio_PrivateKey(reader.get(), nullptr, nullptr, const_cast<char*>("")));
  ERR_clear_error();
  if (key == nullptr) {
    return InvalidArgument(
        Cat(path, " holds no private key that can be used: want PEM without a passphrase",
            text.find("ENCRYPTED") != std::string::npos ? "; it has one (openssl pkey removes it)" : ""));
  }
  HIR_ASSIGN(const auto all, ReadCertificates(cert));
  const bool matches = X509_check_private_key(all.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (matches) return {};
  return InvalidArgument(
      Cat(path, " is not the key of the certificate ", cert, ": name the two that were made together"));
}

bool IsNode(std::string_view pem) {
  const std::vector<Openssl<X509>> all = CertificatesIn(std::string(pem));
  return !all.empty() && IsFor(all.front().get(), X509_PURPOSE_SSL_SERVER) &&
         IsFor(all.front().get(), X509_PURPOSE_SSL_CLIENT);
}

Status CheckTls(const TlsFiles& files, TlsSide side) {
  HIR_TRY(CheckCa(files.ca));
  HIR_TRY(CheckCertificate(files.cert, side));
  return CheckKey(files.key, files.cert);
}

std::string DescribeCertificate(const std::string& path) {
  const auto all = ReadCertificates(path);
  if (!all.ok()) return "";
  const X509* own = all->front().get();
  return Cat(TextOf(X509_get_subject_name(own)), ", signed by ", TextOf(X509_get_issuer_name(own)), ", valid until ",
             TextOf(X509_get0_notAfter(own)));
}

}  // namespace hir::service
