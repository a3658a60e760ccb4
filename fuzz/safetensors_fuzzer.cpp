#include <algorithm>

#include "weft/base/safetensors.h"

#include "fuzz/safetensors_input.h"
#include "fuzz/targets.h"
#include "tests/base/memory_env.h"

namespace weft::fuzz {

void safetensors(std::string_view input) {
  MemoryEnv env({{"in", safetensors_file(input)}});
  const SafetensorsFile in(env, "in");
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, info] : in.header().tensors)
    tensors.push_back({name, info.dtype, info.shape, in.data(name)});

  // What was read must survive being written.
  write_safetensors(env, "out", tensors, in.header().metadata);
  const SafetensorsFile out(env, "out");
  WEFT_ASSERT(out.header().tensors.size() == tensors.size(), "{} tensors became {}", tensors.size(),
              out.header().tensors.size());
  for (const TensorToWrite& tensor : tensors) {
    const TensorInfo& info = out.info(tensor.name);
    WEFT_ASSERT(info.dtype == tensor.dtype && info.shape == tensor.shape, "tensor {} became {}", tensor.name,
                info.dtype);
    WEFT_ASSERT(std::ranges::equal(out.data(tensor.name), tensor.data), "tensor {} has other bytes",
                tensor.name);
  }
}

}  // namespace weft::fuzz
