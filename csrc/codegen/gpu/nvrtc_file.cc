#include "csrc/codegen/gpu/nvrtc_file.h"

#include <elf.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "csrc/base/text.h"

namespace hir::codegen::gpu {

namespace fs = std::filesystem;
using base::Cat;

namespace {

constexpr size_t kHeadersMax = 64;       // Program headers of a library that is one.
constexpr size_t kNotesMax = 64 * 1024;  // Bytes.

bool ReadAt(std::ifstream& file, uint64_t at, void* to, size_t bytes) {
  file.seekg(static_cast<std::streamoff>(at));
  return static_cast<bool>(file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)));
}

std::string Hex(const unsigned char* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

// The GNU build ID among `notes`; empty when it is not there.
std::string BuildIdIn(const std::vector<unsigned char>& notes) {
  const auto aligned = [](size_t n) { return (n + 3) & ~size_t{3}; };
  for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    const size_t name = at + sizeof note, id = name + aligned(note.n_namesz);
    if (id > notes.size() || note.n_descsz > notes.size() - id) return {};
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes.data() + name, "GNU", 4) == 0)
      return Hex(notes.data() + id, note.n_descsz);
    at = id + aligned(note.n_descsz);
  }
  return {};
}

}  // namespace

std::vector<std::string> FindLibraries(std::span<const std::string> names, std::span<const std::string> directories) {
  std::vector<std::string> found;
  std::error_code error;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    if (name.find('/') != std::string::npos) {
      if (fs::is_regular_file(name, error)) found.push_back(name);
      continue;
    }
    for (const std::string& directory : directories) {
      std::string path = Cat(directory, "/", name);
      if (!fs::is_regular_file(path, error)) continue;
      found.push_back(std::move(path));
      break;
    }
  }
  return found;
}

std::vector<std::string> LoaderDirectories() {
  std::vector<std::string> directories;
  if (const char* given = std::getenv("LD_LIBRARY_PATH"); given != nullptr) {
    std::string_view rest = given;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find_first_of(":;"), rest.size());
      if (end > 0) directories.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at("/etc/ld.so.conf.d", error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".conf") files.push_back(at->path());
  }
  std::ranges::sort(files);
  for (const fs::path& path : files) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      line.resize(std::min(line.find_first_of("# \t\r"), line.size()));
      if (line.starts_with('/')) directories.push_back(line);
    }
  }
  directories.insert(directories.end(), {"/lib64", "/usr/lib64", "/lib", "/usr/lib"});
  return directories;
}

std::optional<std::string> IdentityOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header;
  if (!file || !ReadAt(file, 0, &header, sizeof header)) return std::nullopt;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kHeadersMax)
    return std::nullopt;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!ReadAt(file, header.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr))) return std::nullopt;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kNotesMax) continue;
    std::vector<unsigned char> notes(segment.p_filesz);
    if (!ReadAt(file, segment.p_offset, notes.data(), notes.size())) return std::nullopt;
    if (const std::string id = BuildIdIn(notes); !id.empty()) return Cat("build ", id);
  }
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  std::error_code error;
  return Cat("file ", fs::canonical(path, error).string(), " ", status.st_size, " ", status.st_mtim.tv_sec, ".",
             status.st_mtim.tv_nsec);
}

}  // namespace hir::codegen::gpu
