#include "weft/parity/table.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "weft/base/error.h"
#include "weft/base/text.h"

namespace weft {
namespace {

using Choices = std::vector<size_t>;  // of each factor, one's place

std::string place(const std::string& path, const toml::node& node) {
  return fmt::format("{}:{}", path, node.source().begin.line);
}

/// "label: words" or "words".
struct Choice {
  std::string label;
  std::vector<std::string> words;
};

Choice parse_choice(const std::string& text) {
  Choice choice{trimmed(text), {}};
  const size_t colon = text.find(": ");
  const bool labelled = colon < text.find('=');
  if (labelled) choice.label = trimmed(text.substr(0, colon));
  std::istringstream stream(labelled ? text.substr(colon + 1) : text);
  for (std::string word; stream >> word;) choice.words.push_back(word);
  return choice;
}

/// The number of "ranks=N"; 0 if `word` is something else.
int64_t ranks_of(const std::string& word) {
  constexpr std::string_view kKey = "ranks=";
  int64_t ranks = 0;
  if (!word.starts_with(kKey)) return 0;
  const char* const end = word.data() + word.size();
  const auto [stop, problem] = std::from_chars(word.data() + kKey.size(), end, ranks);
  if (problem != std::errc() || stop != end || ranks < 1 || ranks > 1024)
    fail("{}: expected a number from 1 to 1024", word);
  return ranks;
}

ParityFactor read_factor(const std::string& path, const std::string& name, const toml::node& node,
                         bool variant) {
  ParityFactor factor{name, variant, {}};
  const toml::array* const choices = node.as_array();
  if (!choices || choices->empty())
    fail("{}: {} must be a list of choices, each a text", place(path, node), name);
  for (const toml::node& choice : *choices) {
    if (!choice.is_string()) fail("{}: a choice of {} is not a text", place(path, choice), name);
    factor.choices.push_back(choice.as_string()->get());
    for (const std::string& word : parse_choice(factor.choices.back()).words) {
      if (word.find('=') == std::string::npos)
        fail("{}: \"{}\" in a choice of {} is not KEY=VALUE", place(path, choice), word, name);
      if (ranks_of(word) > 0 && variant)
        fail("{}: {} belongs to [layout]: it must not change the curve", place(path, choice), word);
    }
  }
  return factor;
}

ParityRow row_of(const ParityTable& table, const Choices& choices) {
  ParityRow row;
  for (size_t f = 0; f < table.factors.size(); ++f) {
    const ParityFactor& factor = table.factors[f];
    const Choice choice = parse_choice(factor.choices[choices[f]]);
    if (!choice.label.empty()) row.label += (row.label.empty() ? "" : ", ") + choice.label;
    for (const std::string& word : choice.words) {
      if (const int64_t ranks = ranks_of(word))
        row.ranks = ranks;
      else
        (factor.variant ? row.variant : row.layout).push_back(word);
    }
  }
  return row;
}

/// Choice a of factor `first` and choice b of factor `second`, first < second.
struct Pair {
  size_t first, a, second, b;
  auto operator<=>(const Pair&) const = default;
};

}  // namespace

ParityTable read_parity_table(const std::string& path, Env& env) {
  toml::table file;
  try {
    file = toml::parse(env.read(path), path);
  } catch (const toml::parse_error& error) {
    fail("{}:{}: {}", path, error.source().begin.line, error.description());
  }
  ParityTable table;
  for (const auto& [key, node] : file) {
    if (key == "base" && node.is_string()) {
      table.base = (std::filesystem::path(path).parent_path() / node.as_string()->get()).string();
    } else if (key == "bound" && node.is_number()) {
      table.bound = node.value<double>().value_or(0);
    } else if (key == "weights_bound" && node.is_number()) {
      table.weights_bound = node.value<double>().value_or(0);
    } else if ((key == "variant" || key == "layout") && node.is_table()) {
      for (const auto& [name, choices] : *node.as_table())
        table.factors.push_back(read_factor(path, std::string(name), choices, key == "variant"));
    } else {
      fail("{}: {} is none of base = \"FILE\", bound and weights_bound = NUMBER, [variant], [layout]",
           place(path, node), std::string(key));
    }
  }
  if (table.base.empty()) fail("{}: base is missing: the config that every row starts from", path);
  if (table.factors.empty()) fail("{}: there are no factors in [variant] or [layout]", path);
  if (table.weights_bound == 0) table.weights_bound = table.bound;
  if (!(table.bound > 0 && table.weights_bound > 0)) fail("{}: bounds must be above 0", path);
  return table;
}

std::vector<ParityRow> pairwise_rows(const ParityTable& table) {
  const auto& factors = table.factors;
  std::set<Pair> open;  // not met yet
  for (size_t first = 0; first < factors.size(); ++first)
    for (size_t second = first + 1; second < factors.size(); ++second)
      for (size_t a = 0; a < factors[first].choices.size(); ++a)
        for (size_t b = 0; b < factors[second].choices.size(); ++b) open.insert({first, a, second, b});

  std::vector<std::vector<int>> uses;  // of each choice: of equal ones the least used is taken
  for (const ParityFactor& factor : factors) uses.emplace_back(factor.choices.size(), 0);
  const auto pair = [](size_t f, size_t a, size_t g, size_t b) {
    return f < g ? Pair{f, a, g, b} : Pair{g, b, f, a};
  };
  std::vector<ParityRow> rows;
  const auto enter = [&](const Choices& choices) {
    for (size_t f = 0; f < factors.size(); ++f) {
      ++uses[f][choices[f]];
      for (size_t g = f + 1; g < factors.size(); ++g) open.erase({f, choices[f], g, choices[g]});
    }
    rows.push_back(row_of(table, choices));
  };
  if (factors.size() == 1)
    for (size_t a = 0; a < factors[0].choices.size(); ++a) enter({a});
  while (!open.empty()) {
    constexpr size_t kNone = size_t(-1);
    Choices choices(factors.size(), kNone);
    const Pair seed = *open.begin();
    choices[seed.first] = seed.a, choices[seed.second] = seed.b;
    for (size_t f = 0; f < factors.size(); ++f) {
      if (choices[f] != kNone) continue;
      std::pair<int, int> best;  // pairs that meet for the first time, minus uses
      for (size_t a = 0; a < factors[f].choices.size(); ++a) {
        int met = 0;
        for (size_t g = 0; g < factors.size(); ++g)
          if (choices[g] != kNone && g != f) met += int(open.contains(pair(f, a, g, choices[g])));
        const std::pair<int, int> merit{met, -uses[f][a]};
        if (choices[f] == kNone || merit > best) best = merit, choices[f] = a;
      }
    }
    enter(choices);
  }
  return rows;
}

std::vector<ParityRow> all_rows(const ParityTable& table) {
  std::vector<ParityRow> rows;
  Choices choices(table.factors.size(), 0);
  while (true) {
    rows.push_back(row_of(table, choices));
    size_t f = 0;
    while (f < choices.size() && ++choices[f] == table.factors[f].choices.size()) choices[f++] = 0;
    if (f == choices.size()) return rows;
  }
}

}  // namespace weft
