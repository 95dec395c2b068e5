// Goal: a compiler is known by its file, without loading it, and what one compiled is never given for another.
// Method: copies of a library with a bit changed; processes of their own that share a directory of kernels, each of
// which says what it compiled, what it read, and whether NVRTC is in its memory then.
#include "csrc/codegen/gpu/nvrtc_file.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/nvrtc.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen::gpu {
namespace {

namespace fs = std::filesystem;
using base::Cat;

class NvrtcFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (fs::temp_directory_path() / "hostir-nvrtc-XXXXXX").string();
    ASSERT_NE(mkdtemp(path_.data()), nullptr);
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string At(std::string_view name) const { return Cat(path_, "/", name); }
  std::string Make(std::string_view name, std::string_view bytes) const {
    fs::create_directories(fs::path(At(name)).parent_path());
    std::ofstream(At(name), std::ios::binary) << bytes;
    return At(name);
  }

  std::string path_;
};

std::string ReadFile(const std::string& path) {
  std::stringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(bytes).str();
}

std::string MathLibrary() {
  void* library = dlopen("libm.so.6", RTLD_NOW);
  const link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
  return map->l_name;
}

// `bytes` of a library with a bit of its build ID changed, or, for "type", with a note of another type.
std::string Changed(std::string bytes, const std::string& path, bool type) {
  const std::string identity = *IdentityOf(path);
  std::string id;  // In bytes.
  for (size_t at = std::string("build ").size(); at < identity.size(); at += 2)
    id += static_cast<char>(std::stoi(identity.substr(at, 2), nullptr, 16));
  const size_t at = bytes.find(id);
  if (at == std::string::npos) std::abort();
  const size_t changed = type ? at - 8 : at + id.size() - 1;  // Of "type", "GNU\0", the ID.
  bytes[changed] = static_cast<char>(bytes[changed] ^ 0x40);
  return bytes;
}

TEST_F(NvrtcFile, IsLookedForAsTheLoaderDoes) {
  Make("a/libx.so.2", "");
  Make("b/libx.so.1", "");
  Make("b/libx.so.2", "");
  const std::string names[] = {"libx.so.1", At("none/libx.so"), "liby.so", "libx.so.2", At("b/libx.so.2")};
  const std::string directories[] = {At("none"), At("a"), At("b")};
  EXPECT_EQ(FindLibraries(names, directories),
            (std::vector<std::string>{At("b/libx.so.1"), At("a/libx.so.2"), At("b/libx.so.2")}));
}

TEST_F(NvrtcFile, IsKnownByItsBuild) {
  const std::string library = MathLibrary();
  const auto identity = IdentityOf(library);
  ASSERT_TRUE(identity) << library;
  if (!identity->starts_with("build ")) GTEST_SKIP() << library << " has no build ID";
  const std::string bytes = ReadFile(library);
  EXPECT_EQ(IdentityOf(Make("copy.so", bytes)), identity);
  fs::create_symlink(library, At("link.so"));
  EXPECT_EQ(IdentityOf(At("link.so")), identity);
  const auto other = IdentityOf(Make("other.so", Changed(bytes, library, false)));
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->starts_with("build "));
  EXPECT_NE(other, identity);
}

TEST_F(NvrtcFile, WithoutABuildIsKnownByPathSizeAndTime) {
  const std::string library = MathLibrary();
  const auto identity = IdentityOf(library);
  ASSERT_TRUE(identity) << library;
  std::string bytes = ReadFile(library);
  if (identity->starts_with("build ")) bytes = Changed(bytes, library, true);
  const auto first = IdentityOf(Make("a.so", bytes));
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->starts_with("file ")) << *first;
  EXPECT_EQ(IdentityOf(At("a.so")), first);
  EXPECT_NE(IdentityOf(Make("b.so", bytes)), first);
  fs::last_write_time(At("a.so"), fs::last_write_time(At("a.so")) + std::chrono::nanoseconds(1000));
  EXPECT_NE(IdentityOf(At("a.so")), first);
}

TEST_F(NvrtcFile, IsALibrary) {
  EXPECT_FALSE(IdentityOf(At("none")));
  EXPECT_FALSE(IdentityOf(Make("empty", "")));
  EXPECT_FALSE(IdentityOf(Make("text", std::string(1000, 'x'))));
  EXPECT_FALSE(IdentityOf(Make("cut", ReadFile(MathLibrary()).substr(0, 100))));
  EXPECT_FALSE(IdentityOf(path_));
}

// What a process of its own says: compiled, read from disk, NVRTC loaded; a bit each.
constexpr int kCompiled = 1, kRead = 2, kLoaded = 4, kFailed = 8;

int CompileApart(const std::string& library, const std::string& directory) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("HOSTIR_NVRTC", library.c_str(), 1);
    auto graph = ir::Parse("fusion @f(%x: f32[i0]) {\n  %a = exp(%x)\n  return %a\n}", fusion::kFusionOps);
    std::vector<ir::Op*> ops;
    ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
    const segment::Group group = segment::MakeGroup(**graph, ops);
    const auto plan = Plan(group.View(**graph), "k", kHopper, {});
    Compiler compiler({.cache_directory = directory});
    const bool ok = plan.ok() && compiler.Compile(*plan).ok();
    const bool is_loaded = ReadFile("/proc/self/maps").find("libnvrtc") != std::string::npos;
    _exit((compiler.num_compiled() > 0 ? kCompiled : 0) | (compiler.num_from_disk() > 0 ? kRead : 0) |
          (is_loaded ? kLoaded : 0) | (ok ? 0 : kFailed));
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST_F(NvrtcFile, TellsWhoseKernelsTheyAre) {
  std::string library;
  for (const std::string& file : NvrtcFiles()) {
    if (library.empty() && IdentityOf(file)) library = fs::canonical(file).string();
  }
  if (library.empty()) GTEST_SKIP() << "no NVRTC on this machine";
  const std::string cache = At("cache");
  EXPECT_EQ(CompileApart(library, cache), kCompiled | kLoaded);
  EXPECT_EQ(CompileApart(library, cache), kRead);  // And NVRTC is not loaded for it.
  fs::create_symlink(library, At("libnvrtc-link.so"));
  EXPECT_EQ(CompileApart(At("libnvrtc-link.so"), cache), kRead);
  if (!IdentityOf(library)->starts_with("build ")) return;
  // Another build under the same name. It may not find its parts here; it must not find the first one's work.
  const std::string other = Make("other.so", Changed(ReadFile(library), library, false));
  fs::rename(other, At("libnvrtc-link.so"));
  const int did = CompileApart(At("libnvrtc-link.so"), cache);
  EXPECT_EQ(did & (kRead | kLoaded), kLoaded);
  if ((did & kFailed) == 0) {
    EXPECT_EQ(did, kCompiled | kLoaded);
    EXPECT_EQ(CompileApart(At("libnvrtc-link.so"), cache), kRead);
  }
  EXPECT_EQ(CompileApart(library, cache), kRead);
}

}  // namespace
}  // namespace hir::codegen::gpu
