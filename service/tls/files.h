// TlsFiles: the three files by which one side of a connection shows who it is, and knows the other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace hir::service {

// Paths of PEM files; all of them, or none: no TLS.
struct TlsFiles {
  std::string ca;    // Certificates of the authorities that sign the other side's.
  std::string cert;  // This side's certificate, and those between it and its authority.
  std::string key;   // The private key of it.

  bool any() const { return !ca.empty() || !cert.empty() || !key.empty(); }
  bool all() const { return !ca.empty() && !cert.empty() && !key.empty(); }
};

// A node of a cluster is a server to its head, and the head a client of it: certificates of nodes are for both.
enum class TlsSide : uint8_t { kServer, kClient, kNode };

// Each says whether a file will do, before anybody connects. Errors name the file, the fault and the remedy:
// kNotFound, kPermissionDenied: it cannot be read, or a key can be by others; kInvalidArgument: what it holds is
// another thing than wanted, has expired, is not valid yet, or has no name that the other side could check.
Status CheckCa(const std::string& path);
Status CheckCertificate(const std::string& path, TlsSide side);
// `cert`: the certificate's path, which has been checked.
Status CheckKey(const std::string& path, const std::string& cert);

// Whether `pem`, a certificate whose authority was checked, is a node's: one for clients alone gives no orders.
bool IsNode(std::string_view pem);

// The first fault of the three; OK when there are none.
Status CheckTls(const TlsFiles& files, TlsSide side);

// "CN=alice, signed by CN=hostir test authority, valid until Dec  1 12:00:00 2026 GMT", for errors; "" when the file
// holds none.
std::string DescribeCertificate(const std::string& path);

}  // namespace hir::service
