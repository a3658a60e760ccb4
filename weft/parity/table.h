// The one-curve table (design: "any layout gives the same loss curve"), as a file describes it: factors, each
// with its choices, and the rows that cross them. No torch here.
//
//   base = "base.toml"      # the config that every row starts from; the path is relative to the table's
//   bound = 1e-9            # of loss and gradient norm
//   weights_bound = 1e-9    # of the final weights; the same unless it is there
//   [variant]               # choices that make another curve, which one rank is asked for too
//   model = ["", "model.tie_embeddings=true"]
//   [layout]                # choices that must not change the curve
//   mesh = ["ranks=1", "ranks=4 parallel.dp_replicate=2"]
//   zero = ["parallel.zero=0", "parallel.zero=3"]
//
// A choice is a list of KEY=VALUE, as for --set, separated by spaces; ranks=N is how many take part. It may
// begin with a label: "HSDP: ranks=4 parallel.dp_replicate=2".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/env.h"

namespace weft {

struct ParityFactor {
  std::string name;
  bool variant;  // else layout
  std::vector<std::string> choices;
};

/// One choice of each factor.
struct ParityRow {
  int64_t ranks = 1;
  std::vector<std::string> variant, layout;  // KEY=VALUE
  std::string label;                         // for people
};

struct ParityTable {
  std::string base;  // path
  double bound = 1e-9, weights_bound = 0;
  std::vector<ParityFactor> factors;
};

/// Throws Error naming file, line and what is wrong.
ParityTable read_parity_table(const std::string& path, Env& env = Env::system());

/// Rows in which every two choices of two factors meet at least once: a pairwise covering array (Cohen et
/// al., "The AETG system", 1997), the same every time.
std::vector<ParityRow> pairwise_rows(const ParityTable& table);

/// Every combination of choices.
std::vector<ParityRow> all_rows(const ParityTable& table);

}  // namespace weft
