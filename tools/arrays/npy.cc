#include "tools/arrays/npy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "csrc/base/checked.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"

namespace hir::arrays {
namespace {

using base::Cat;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kHeaderAlignment = 64;
constexpr size_t kTypeCharacters = 64;  // Of a type in an error.

std::string_view DescrOf(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "|b1";
    case DType::kUInt8: return "|u1";
    case DType::kInt8: return "|i1";
    case DType::kInt32: return "<i4";
    case DType::kInt64: return "<i8";
    case DType::kFloat16: return "<f2";
    case DType::kBFloat16: return "|V2";
    case DType::kFloat32: return "<f4";
    case DType::kFloat64: return "<f8";
  }
  return "";
}

// Bytes of one element; nothing for a type that no program has.
std::optional<int64_t> ElementBytes(std::string_view descr) {
  if (descr == "<u2" || descr == "<V2") return 2;
  for (DType dtype : kAllDTypes) {
    if (descr == DescrOf(dtype)) return DTypeBytes(dtype);
  }
  return std::nullopt;
}

// The text after `'key':` of the header, a Python dictionary, without spaces in front.
std::optional<std::string_view> ValueOf(std::string_view dictionary, std::string_view key) {
  const size_t at = dictionary.find(Cat("'", key, "':"));
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = dictionary.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

// "(3, 4)", "(3,)", "()".
std::optional<std::vector<int64_t>> ParseShape(std::string_view text) {
  const size_t end = text.find(')');
  if (!text.starts_with('(') || end == std::string_view::npos) return std::nullopt;
  text = text.substr(1, end - 1);
  std::vector<int64_t> shape;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view number = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    number.remove_prefix(std::min(number.find_first_not_of(' '), number.size()));
    if (number.empty() && text.empty()) break;
    const std::optional<int64_t> extent = base::ParseInt(number);
    if (!extent || *extent < 0) return std::nullopt;
    shape.push_back(*extent);
  }
  return shape;
}

Status SystemError(std::string_view what, const std::string& path) {
  return Unavailable(Cat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

}  // namespace

Result<NpyHeader> ParseNpyHeader(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < 12) {
    return InvalidArgument("is no .npy file; write it by numpy.save");
  }
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
  // Version 1 has two bytes of length, 2 and 3 have four.
  const size_t begin = byte(6) == 1 ? 10 : 12;
  size_t length = byte(8) | byte(9) << 8;
  if (begin == 12) length |= byte(10) << 16 | byte(11) << 24;
  if (bytes.size() - begin < length) return InvalidArgument("ends within its header");
  const std::string_view dictionary = bytes.substr(begin, length);

  NpyHeader header;
  header.data_offset = static_cast<int64_t>(begin + length);
  const auto descr = ValueOf(dictionary, "descr");
  const auto order = ValueOf(dictionary, "fortran_order");
  const auto shape = ValueOf(dictionary, "shape");
  if (!descr || !order || !shape) return InvalidArgument("has no readable .npy header");
  if (descr->starts_with('\'')) header.descr = descr->substr(1, descr->find('\'', 1) - 1);
  if (!ElementBytes(header.descr)) {
    const std::string_view type =
        header.descr.empty() ? descr->substr(0, descr->find(", 'fortran_order")) : header.descr;
    return InvalidArgument(Cat("holds elements of type ", base::Quoted(type.substr(0, kTypeCharacters)),
                               "; a program's are bool, int32, int64, float16, float32, float64, and bfloat16 as two "
                               "bytes (V2 or uint16), all little-endian"));
  }
  if (!order->starts_with("False")) {
    return InvalidArgument("is column-major; save numpy.ascontiguousarray of it");
  }
  const auto extents = ParseShape(*shape);
  if (!extents) return InvalidArgument("has no readable shape");
  header.shape = *extents;
  return header;
}

std::string MakeNpyHeader(DType dtype, std::span<const int64_t> shape) {
  std::string extents;
  for (size_t i = 0; i < shape.size(); ++i) base::Append(extents, shape[i], i + 1 < shape.size() ? ", " : "");
  if (shape.size() == 1) extents += ",";
  std::string dictionary = Cat("{'descr': '", DescrOf(dtype), "', 'fortran_order': False, 'shape': (", extents, "), }");
  const size_t unpadded = kMagic.size() + 4 + dictionary.size() + 1;
  dictionary.append((kHeaderAlignment - unpadded % kHeaderAlignment) % kHeaderAlignment, ' ');
  dictionary += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(dictionary.size() & 0xff);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

bool Holds(std::string_view descr, DType dtype) {
  if (dtype == DType::kBFloat16 && (descr == "<u2" || descr == "<V2")) return true;
  return descr == DescrOf(dtype);
}

Result<NpyFile> NpyFile::Open(const std::string& path) {
  // A FIFO would wait for who writes it: it is opened without, and then refused.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Status(Code::kNotFound, Cat("cannot read ", path, ": ", std::strerror(errno)));
  struct stat stat = {};
  void* mapped = MAP_FAILED;
  if (fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size > 0) {
    mapped = mmap(nullptr, static_cast<size_t>(stat.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  }
  close(fd);
  if (mapped == MAP_FAILED) return InvalidArgument(Cat(path, " is empty, or no file"));
  NpyFile file(path, static_cast<const std::byte*>(mapped), static_cast<size_t>(stat.st_size));
  Result<NpyHeader> header = ParseNpyHeader({static_cast<const char*>(mapped), file.mapped_bytes_});
  if (!header.ok()) return InvalidArgument(Cat(path, " ", header.status().message()));
  file.header_ = *std::move(header);
  std::optional<int64_t> bytes = ElementBytes(file.header_.descr);
  for (int64_t extent : file.header_.shape) bytes = bytes ? base::CheckedMul(*bytes, extent) : std::nullopt;
  if (!bytes || *bytes > stat.st_size - file.header_.data_offset) {
    return InvalidArgument(
        Cat(path, " has ", stat.st_size - file.header_.data_offset, " bytes of elements, fewer than its shape says"));
  }
  return file;
}

NpyFile::NpyFile(NpyFile&& other) noexcept
    : path_(std::move(other.path_)),
      header_(std::move(other.header_)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(other.mapped_bytes_) {}

NpyFile::~NpyFile() {
  if (mapped_ != nullptr) munmap(const_cast<std::byte*>(mapped_), mapped_bytes_);
}

Result<NpyWriter> NpyWriter::Open(const std::string& path, DType dtype, std::span<const int64_t> shape, bool create) {
  const std::string header = MakeNpyHeader(dtype, shape);
  // A FIFO would wait for who reads it: without, that is an error (ENXIO), as is its size.
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | (create ? O_CREAT | O_TRUNC : 0), 0666);
  if (fd < 0) return SystemError("write", path);
  NpyWriter writer(path, fd, static_cast<int64_t>(header.size()));
  if (!create) return writer;
  int64_t bytes = DTypeBytes(dtype);
  for (int64_t extent : shape) bytes *= extent;
  if (ftruncate(fd, writer.data_offset_ + bytes) != 0) return SystemError("write", path);
  HIR_TRY(writer.Write(-writer.data_offset_, std::as_bytes(std::span(header))));
  return writer;
}

NpyWriter::NpyWriter(NpyWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), data_offset_(other.data_offset_) {}

NpyWriter::~NpyWriter() {
  if (fd_ >= 0) close(fd_);
}

Status NpyWriter::Write(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), data_offset_ + offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return SystemError("write", path_);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return {};
}

}  // namespace hir::arrays
