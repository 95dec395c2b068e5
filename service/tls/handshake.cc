#include "service/tls/handshake.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "csrc/base/fd.h"
#include "csrc/base/text.h"
#include "service/tls/openssl.h"

namespace hir::service {
namespace {

using base::Cat;
using base::Nanos;

constexpr std::array<unsigned char, 3> kHttp2 = {2, 'h', '2'};  // As ALPN lists it.
// HTTP/2's preface and empty settings, and the type of the frame that answers it (RFC 9113, 3.4 and 6.5).
constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr size_t kFrameHeaderBytes = 9;
constexpr char kSettings = 4;

Nanos Now() { return base::Clock::Steady().Now(); }

// OpenSSL writes to sockets without MSG_NOSIGNAL: a peer that has gone would end this process.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec none = {};
    if (sigismember(&before_, SIGPIPE) == 0) sigtimedwait(&pipe_, nullptr, &none);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_ = {};
  sigset_t before_ = {};
};

struct Target {
  std::string host;
  std::string port;
};

Target Split(const std::string& target) {
  const size_t colon = target.rfind(':');
  std::string host = target.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return {host, target.substr(colon + 1)};
}

// A connected socket whose calls end at `deadline`, roughly; none where nobody listens.
base::Fd Dial(const Target& target, Nanos deadline) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &first) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(first, freeaddrinfo);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    base::Fd fd(socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - Now());
    if (left.count() <= 0) return {};
    const timeval wait = {left.count() / 1000000, left.count() % 1000000};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    if (connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0) return fd;
  }
  return {};
}

// A connection that has tried to speak TLS.
struct Tried {
  base::Fd fd;
  Openssl<SSL_CTX> context;
  Openssl<SSL> ssl;
  bool connected = false;
  bool answered = false;  // By TLS, if only to refuse.
};

// `files`: none: the daemon is not asked who it is. `check_name`: that it has the name of the target.
Tried Try(const Target& target, const TlsFiles& files, bool check_name, Nanos deadline) {
  Tried tried = {Dial(target, deadline), Openssl<SSL_CTX>(SSL_CTX_new(TLS_client_method())), {}, false, false};
  SSL_CTX* context = tried.context.get();
  if (files.all()) {
    SSL_CTX_load_verify_file(context, files.ca.c_str());
    SSL_CTX_use_certificate_chain_file(context, files.cert.c_str());
    SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  }
  SSL_CTX_set_alpn_protos(context, kHttp2.data(), kHttp2.size());
  tried.ssl.reset(SSL_new(context));
  SSL* ssl = tried.ssl.get();
  std::array<unsigned char, sizeof(in6_addr)> bytes = {};
  const bool is_ip = inet_pton(AF_INET, target.host.c_str(), bytes.data()) == 1 ||
                     inet_pton(AF_INET6, target.host.c_str(), bytes.data()) == 1;
  if (!is_ip) SSL_set_tlsext_host_name(ssl, target.host.c_str());
  if (check_name && is_ip) X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), target.host.c_str());
  if (check_name && !is_ip) SSL_set1_host(ssl, target.host.c_str());
  if (!tried.fd.valid()) return tried;
  SSL_set_fd(ssl, tried.fd.get());
  tried.connected = SSL_connect(ssl) == 1;
  tried.answered = tried.connected || SSL_get_state(ssl) != TLS_ST_CW_CLNT_HELLO;
  ERR_clear_error();
  return tried;
}

// The names of the certificate that the daemon has shown: "localhost, 127.0.0.1".
std::string NamesOf(SSL* ssl) {
  const Openssl<X509> certificate(SSL_get1_peer_certificate(ssl));
  if (certificate == nullptr) return "";
  const Openssl<GENERAL_NAMES> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> all;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int type = 0;
    const auto* value =
        static_cast<const ASN1_STRING*>(GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &type));
    const unsigned char* data = type == GEN_DNS || type == GEN_IPADD ? ASN1_STRING_get0_data(value) : nullptr;
    if (data == nullptr) continue;
    const int size = ASN1_STRING_length(value);
    if (type == GEN_DNS) {
      all.emplace_back(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
    } else {
      std::array<char, INET6_ADDRSTRLEN> text = {};
      inet_ntop(size == sizeof(in_addr) ? AF_INET : AF_INET6, data, text.data(), text.size());
      all.emplace_back(text.data());
    }
  }
  return base::Join(all, ", ");
}

bool SpeaksPlainHttp2(const Target& target, Nanos deadline) {
  const base::Fd fd = Dial(target, deadline);
  if (!fd.valid()) return false;
  if (send(fd.get(), kPreface.data(), kPreface.size(), MSG_NOSIGNAL) < 0) return false;
  std::array<char, kFrameHeaderBytes> frame = {};
  return recv(fd.get(), frame.data(), frame.size(), MSG_WAITALL) == static_cast<ssize_t>(frame.size()) &&
         frame[3] == kSettings;
}

std::string WhyNotVerified(long verified, const Target& target, const TlsFiles& files, Nanos deadline) {
  switch (verified) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: {
      const Tried again = Try(target, files, /*check_name=*/false, deadline);
      return Cat("has a certificate for other names than ", target.host, " (", NamesOf(again.ssl.get()),
                 "): connect by one of these, or have its tls_cert signed for this one, too");
    }
    case X509_V_ERR_CERT_HAS_EXPIRED: return "has a certificate that has expired: its tls_cert must be renewed";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "has a certificate that is not valid yet: one of the two machines' clocks is wrong";
    default:
      return Cat("has a certificate that the authorities of ", files.ca, " did not sign (",
                 X509_verify_cert_error_string(verified), "): give the ca that did (--ca, HOSTIR_CA)");
  }
}

}  // namespace

std::string WhyNotConnected(const std::string& address, const TlsFiles& files, Nanos timeout) {
  const NoPipeSignal no_signal;
  const Nanos deadline = Now() + timeout;
  const Target target = Split(address);
  Tried tried = Try(target, files, /*check_name=*/files.all(), deadline);
  if (!tried.fd.valid()) return "";
  if (!files.all()) {
    return tried.answered ? "speaks TLS: connect with ca, cert and key (--ca --cert --key; HOSTIR_CA, HOSTIR_CERT, "
                            "HOSTIR_KEY)"
                          : "";
  }
  const long verified = SSL_get_verify_result(tried.ssl.get());
  if (verified != X509_V_OK) return WhyNotVerified(verified, target, files, deadline);
  if (!tried.answered) {
    return SpeaksPlainHttp2(target, deadline)
               ? "speaks no TLS: connect without ca, cert and key, or start it with --tls-cert, --tls-key and "
                 "--tls-client-ca"
               : "";
  }
  // It looks at our certificate when we think that all is done (TLS 1.3), and says nothing of what it finds.
  char byte = 0;
  const bool served = tried.connected && SSL_read(tried.ssl.get(), &byte, 1) == 1;
  ERR_clear_error();
  if (served) return "";
  return Cat("does not take the certificate ", files.cert, " (", DescribeCertificate(files.cert),
             "): have one signed by an authority of its tls_client_ca (--cert, HOSTIR_CERT)");
}

}  // namespace hir::service
