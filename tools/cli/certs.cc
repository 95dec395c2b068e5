// hostir certs: an authority, and the certificates of a daemon and its clients, for trying TLS out.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "csrc/base/fd.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/tls/authority.h"
#include "tools/cli/commands.h"
#include "tools/cli/options.h"

namespace hir::cli {
namespace {

using base::Cat;

constexpr std::string_view kAuthorityName = "hostir test authority";
const std::vector<std::string> kServers = {"localhost", "127.0.0.1", "::1"};
const std::vector<std::string> kClients = {"client"};

struct File {
  std::string name;
  std::string text;
};

// A client's name is its file's, too.
Status CheckClient(const std::string& name) {
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-._@").find(c) != std::string_view::npos;
  });
  if (plain && !name.empty() && !name.starts_with('.') && name != "ca" && name != "server" && name != "node") return {};
  return InvalidArgument(Cat("--client ", base::Quoted(name),
                             ": want letters, digits and -._@, not ca, server or node: files are named by it"));
}

void AddIssued(const std::string& name, const service::Issued& issued, std::vector<File>& files) {
  files.push_back({name + ".pem", issued.cert});
  files.push_back({name + ".key", issued.key});
}

Result<std::vector<File>> MakeFiles(const std::vector<std::string>& servers, const std::vector<std::string>& clients,
                                    const std::vector<std::string>& nodes, int64_t days) {
  HIR_ASSIGN(const auto authority, service::Authority::Make(std::string(kAuthorityName), days));
  std::vector<File> files;
  AddIssued("ca", authority->own(), files);
  auto server = authority->Issue(servers, service::TlsSide::kServer, days);
  if (!server.ok()) return server.status().WithContext("--server");
  AddIssued("server", *server, files);
  if (!nodes.empty()) {
    auto node = authority->Issue(nodes, service::TlsSide::kNode, days);
    if (!node.ok()) return node.status().WithContext("--node");
    AddIssued("node", *node, files);
  }
  for (const std::string& client : clients) {
    HIR_TRY(CheckClient(client));
    HIR_ASSIGN(const service::Issued issued, authority->Issue({&client, 1}, service::TlsSide::kClient, days));
    AddIssued(client, issued, files);
  }
  return files;
}

Status Failed(const std::string& path) { return {Code::kUnavailable, Cat(path, ": ", std::strerror(errno))}; }

// All of them, or none where one is there already.
Status Write(const std::string& folder, const std::vector<File>& files) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return Failed(folder);
  for (const File& file : files) {
    struct stat info = {};
    const std::string path = Cat(folder, "/", file.name);
    if (lstat(path.c_str(), &info) == 0) {
      return {Code::kAlreadyExists,
              Cat(path, " is there, and may be somebody's only key: name another folder, or remove it")};
    }
  }
  for (const File& file : files) {
    const std::string path = Cat(folder, "/", file.name);
    const base::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd.valid() || write(fd.get(), file.text.data(), file.text.size()) != static_cast<ssize_t>(file.text.size()) ||
        fsync(fd.get()) != 0) {
      return Failed(path);
    }
  }
  return {};
}

}  // namespace

Outcome MakeCertificates(const Options& options) {
  const std::vector<std::string>& servers = options.servers.empty() ? kServers : options.servers;
  const std::vector<std::string>& clients = options.clients.empty() ? kClients : options.clients;
  const Result<std::vector<File>> files = MakeFiles(servers, clients, options.nodes, options.days);
  if (!files.ok()) return Usage(files.status());
  if (const Status status = Write(options.folder, *files); !status.ok()) return Usage(status);
  const std::string in = Cat(options.folder, "/");
  std::string names;
  for (const File& file : *files) base::Append(names, " ", file.name);
  const std::string& host = servers.front();
  const std::string shown = host.find(':') == std::string::npos ? host : Cat("[", host, "]");
  const std::string text =
      Cat("made in ", options.folder, ", valid for ", options.days, " days:", names,
          "\n\nThe daemon needs server.pem, server.key and ca.pem:\n\n  hostird --listen tcp:0.0.0.0:4710 --tls-cert ",
          in, "server.pem --tls-key ", in, "server.key --tls-client-ca ", in, "ca.pem\n\nA client needs ca.pem, ",
          clients.front(), ".pem and ", clients.front(), ".key:\n\n  hostir status --address tcp:", shown,
          ":4710 --ca ", in, "ca.pem --cert ", in, clients.front(), ".pem --key ", in, clients.front(),
          ".key\n\nWho has ca.key can make clients: keep it elsewhere, or delete it.\n");
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace hir::cli
