// The activation of an MLP: gated (Shazeer 2020: SwiGLU, GeGLU) or plain. GELU in its exact form and in the
// tanh form.
#pragma once

#include <ATen/core/Tensor.h>

namespace weft {

enum class Activation { silu, gelu, gelu_tanh };

/// f(gate) * up. gate_up [tokens, 2 ffn_dim], the gate's half first -> [tokens, ffn_dim].
at::Tensor gated(const at::Tensor& gate_up, Activation f);

/// f(x), elementwise.
at::Tensor activate(const at::Tensor& x, Activation f);

}  // namespace weft
