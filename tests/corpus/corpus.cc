#include "tests/corpus/corpus.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::testing {
namespace {

namespace fs = std::filesystem;

// The rest of the comment that starts so; none without it.
std::vector<std::string> WordsOf(const std::string& text, std::string_view start) {
  std::vector<std::string> found;
  const size_t at = text.find(start);
  if (at == std::string::npos) return found;
  std::istringstream words(text.substr(at + start.size(), text.find('\n', at) - at - start.size()));
  for (std::string word; words >> word;) found.push_back(word);
  return found;
}

// From the line "// Sizes: i0=6 i1=8".
fusion::SymbolValues SizesOf(const std::string& text) {
  fusion::SymbolValues sizes;
  for (const std::string& word : WordsOf(text, "// Sizes:")) {
    const size_t equals = word.find('=');
    sizes[word.substr(0, equals)] = std::atoll(word.c_str() + equals + 1);
  }
  return sizes;
}

int64_t NumDevices(const ir::Graph& graph) {
  int64_t last = 0;
  for (const ir::Mesh& mesh : graph.meshes()) {
    for (const int64_t device : mesh.mesh.devices()) last = std::max(last, device);
  }
  return last + 1;
}

fusion::HostTensor Draw(const ir::Value& param, const CorpusProgram& program, base::Prng& rng) {
  std::vector<int64_t> shape, stored;
  for (const ir::Axis& axis : param.type->axes) {
    shape.push_back(*fusion::ValueOf(axis.extent, program.sizes));
    stored.push_back(axis.kind == ir::AxisKind::kBroadcast ? 1 : shape.back());
  }
  std::vector<double> values(static_cast<size_t>(fusion::ZeroTensor(DType::kBool, stored).num_elements()));
  const bool not_negative = program.not_negative.contains(std::string(param.name));
  for (double& value : values) {
    value = IsFloat(param.type->dtype) ? rng.Unit() * 2 - 1 : static_cast<double>(rng.Below(16));
    if (not_negative) value = std::abs(value);
  }
  return fusion::WrittenOut(fusion::TensorOf(param.type->dtype, stored, values), shape);
}

}  // namespace

std::vector<std::string> CorpusNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(kCorpus)) {
    if (entry.path().extension() == ".hir") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string CorpusPath(const std::string& name, const std::string& extension) {
  const fs::path model = fs::path(kCorpus) / "models" / (name + ".hir");
  fs::path path = fs::exists(model) ? model : fs::path(kCorpus) / (name + ".hir");
  return path.replace_extension(extension).string();
}

Result<std::string> ReadCorpusFile(const std::string& name, const std::string& extension) {
  const std::string path = CorpusPath(name, extension);
  const std::ifstream from(path);
  std::ostringstream text;
  if (from) text << from.rdbuf();
  if (!from || text.str().empty()) return Status(Code::kNotFound, "cannot read " + path);
  return text.str();
}

Result<CorpusProgram> ReadCorpus(const std::string& name) {
  HIR_ASSIGN(const std::string text, ReadCorpusFile(name, ".hir"));
  CorpusProgram program;
  HIR_ASSIGN(program.graph, ir::Parse(text, fusion::kFusionOps));
  program.sizes = SizesOf(text);
  const std::vector<std::string> words = WordsOf(text, "// Not negative:");
  program.not_negative.insert(words.begin(), words.end());
  program.num_devices = NumDevices(*program.graph);
  return program;
}

std::vector<fusion::HostTensor> DrawInputs(const CorpusProgram& program, uint64_t seed) {
  base::Prng rng(seed);
  std::vector<fusion::HostTensor> inputs;
  for (const ir::Value* param : program.graph->params) inputs.push_back(Draw(*param, program, rng));
  return inputs;
}

double NormOf(const fusion::HostTensor& tensor) {
  double norm = 0;
  for (const double value : fusion::ToDoubles(tensor)) norm += value * value;
  return std::sqrt(norm);
}

double DistanceOf(const fusion::HostTensor& got, const fusion::HostTensor& want) {
  if (got.dtype != want.dtype || got.shape != want.shape) return std::nan("");
  const std::vector<double> a = fusion::ToDoubles(got), b = fusion::ToDoubles(want);
  double distance = 0;
  for (size_t i = 0; i < a.size(); ++i) distance += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(distance);
}

double ToleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return 1e-2;
    case DType::kFloat16: return 2e-3;
    case DType::kFloat32: return 1e-5;
    case DType::kFloat64: return 1e-12;
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt32:
    case DType::kInt64: break;
  }
  return 0;
}

}  // namespace hir::testing
