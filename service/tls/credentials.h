// Credentials of gRPC made of the files of TLS, for both sides of a connection.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "service/tls/files.h"

namespace hir::service {

// TLS 1.2 or later, with a certificate on both sides. Files that are replaced are read again; one that is wrong leaves
// those before in force. Without all three: none.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files);
// The same of who connects, by the files as they are now.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const TlsFiles& files);

}  // namespace hir::service
