#include "service/rpc/principal.h"

#include <memory>
#include <optional>
#include <vector>

#include "csrc/base/text.h"

namespace hir::service {

std::string PrincipalOf(const Listener::Peer& peer) { return base::Cat("uid:", peer.uid); }

Result<std::string> PrincipalOf(const grpc::ServerContextBase& context, const Listener& listener) {
  if (const std::optional<Listener::Peer> peer = listener.PeerOf(context.peer())) return PrincipalOf(*peer);
  const std::shared_ptr<const grpc::AuthContext> who = context.auth_context();
  if (who == nullptr || !who->IsPeerAuthenticated()) return std::string("tcp");
  // As gRPC calls them.
  for (const char* property : {"peer_uri", "peer_dns", "x509_common_name"}) {
    for (const grpc::string_ref& name : who->FindPropertyValues(property)) {
      if (!name.empty()) return base::Cat("cert:", std::string(name.data(), name.size()));
    }
  }
  return Status(Code::kUnauthenticated,
                "the client's certificate has no name: have one signed with a URI or DNS name as subject alternative "
                "name, or with a common name");
}

}  // namespace hir::service
