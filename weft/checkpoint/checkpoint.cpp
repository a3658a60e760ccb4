#include "weft/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/checkpoint/rank_file.h"
#include "weft/comm/together.h"

namespace weft {
namespace {

constexpr const char* kTemporary = ".tmp-";  // being written
constexpr const char* kTrash = ".trash-";    // being deleted
constexpr const char* kReplaced = ".old";    // appended while a checkpoint of the same step takes its place

/// A directory that should hold a checkpoint.
struct Candidate {
  std::string name;
  int64_t step;
  bool replaced;
};

std::optional<Candidate> parse_candidate(const std::string& name) {
  std::string_view digits = name;
  if (!digits.starts_with("step-")) return std::nullopt;
  digits.remove_prefix(5);
  const bool replaced = digits.ends_with(kReplaced);
  if (replaced) digits.remove_suffix(std::string_view(kReplaced).size());
  const bool numeric = std::all_of(digits.begin(), digits.end(), [](char c) { return '0' <= c && c <= '9'; });
  if (!numeric || digits.empty() || digits.size() > 18) return std::nullopt;
  return Candidate{name, std::stoll(std::string(digits)), replaced};
}

/// Newest first; of one step, the one that was replaced comes last.
std::vector<Candidate> candidates(Env& env, const std::string& root) {
  std::vector<Candidate> found;
  for (const std::string& name : env.list(root))
    if (const auto candidate = parse_candidate(name)) found.push_back(*candidate);
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(b.step, a.replaced) < std::pair(a.step, b.replaced);
  });
  return found;
}

/// create_dirs, and the new directories survive a power cut.
void create_durably(Env& env, const std::string& dir) {
  if (env.exists(dir)) return;
  const std::string parent = std::filesystem::path(dir).parent_path().string();
  if (!parent.empty()) create_durably(env, parent);
  env.create_dirs(dir);
  env.sync_dir(parent.empty() ? "." : parent);
}

/// What an interrupted save or deletion left behind.
void remove_leftovers(Env& env, const std::string& root) {
  for (const std::string& name : env.list(root))
    if (name.starts_with(kTemporary) || name.starts_with(kTrash)) env.remove_all(root + "/" + name);
}

void write_index(Env& env, const Checkpoint& checkpoint) {
  for (const CheckpointFile& file : checkpoint.files)
    if (!env.exists(checkpoint.dir + "/" + file.name))
      fail("{}/{} was written, but is not to be seen from here: all ranks must share a file system",
           checkpoint.dir, file.name);
  const auto index = env.create(checkpoint.dir + "/" + kIndexFile);
  index->append(index_text(checkpoint));
  index->sync();
  index->close();
  env.sync_dir(checkpoint.dir);
  parse_index(env.read(checkpoint.dir + "/" + kIndexFile), checkpoint.dir);
}

/// Gives the finished directory its name. No name can be swapped for another in one step, so a checkpoint in
/// its place makes way first, under a name that find_checkpoint knows too.
void publish(Env& env, const std::string& root, const std::string& name) {
  const std::string path = root + "/" + name;
  if (env.exists(path)) {
    env.remove_all(path + kReplaced);
    env.rename(path, path + kReplaced);
    env.sync_dir(root);
  }
  env.rename(root + "/" + kTemporary + name, path);
  env.sync_dir(root);
}

/// Deletes what `step` replaced and what is beyond `keep_last`. A directory loses its name first, so that a
/// half-deleted one is never taken for a checkpoint.
void delete_old(Env& env, const std::string& root, int64_t step, int64_t keep_last) {
  std::vector<std::string> trash;
  int64_t kept = 0, previous_step = -1;
  for (const auto& candidate : candidates(env, root)) {
    const bool superseded = candidate.replaced && candidate.step == previous_step;
    previous_step = candidate.step;
    if (candidate.step > step) continue;
    if (superseded || (keep_last > 0 && kept == keep_last)) {
      trash.push_back(root + "/" + kTrash + candidate.name);
      env.rename(root + "/" + candidate.name, trash.back());
    } else {
      ++kept;
    }
  }
  if (!trash.empty()) env.sync_dir(root);
  for (const std::string& path : trash) env.remove_all(path);
}

/// The directory with all ranks' files, on disk and verified when this returns.
void write_checkpoint(Env& env, Checkpoint checkpoint, const std::vector<StateTensor>& tensors,
                      Group& group) {
  on_first(group, [&] { env.create_dirs(checkpoint.dir); });
  RankFile own;
  together(group, [&] { own = write_rank_file(env, checkpoint.dir, group.rank(), tensors); });
  const std::vector<std::string> texts = all_gather(group, to_text(own));
  on_first(group, [&] {
    std::vector<RankFile> files;
    for (const std::string& text : texts) files.push_back(parse_rank_file(text));
    enter(files, &checkpoint);
    write_index(env, checkpoint);
  });
}

}  // namespace

void save_checkpoint(Env& env, const std::string& root, int64_t step, const nlohmann::json& state,
                     const std::vector<StateTensor>& tensors, int64_t keep_last, Group& group) {
  const std::string temporary = root + "/" + kTemporary + step_name(step);
  try {
    on_first(group, [&] {
      create_durably(env, root);
      remove_leftovers(env, root);
    });
    write_checkpoint(env, {temporary, step, state, {}, {}}, tensors, group);
    on_first(group, [&] { publish(env, root, step_name(step)); });
  } catch (const CommError&) {
    throw;  // others may still be writing
  } catch (const Error& error) {
    try {
      if (group.rank() == 0) env.remove_all(temporary);
    } catch (const Error&) {  // the next save tries again
    }
    fail("cannot save the checkpoint of step {}: {}; the earlier checkpoints are untouched", step,
         error.what());
  }
  on_first(group, [&] { delete_old(env, root, step, keep_last); });
}

Checkpoint open_checkpoint(Env& env, const std::string& dir, Group& group) {
  std::string index;
  on_first(group, [&] { index = env.read(dir + "/" + kIndexFile); });
  Checkpoint checkpoint = parse_index(broadcast(group, index), dir);
  together(group, [&] {
    for (size_t i = size_t(group.rank()); i < checkpoint.files.size(); i += size_t(group.size()))
      verify(env, dir, checkpoint.files[i]);
  });
  return checkpoint;
}

std::optional<Checkpoint> find_checkpoint(Env& env, const std::string& root,
                                          const std::function<void(const std::string&)>& warn, Group& group) {
  nlohmann::json names;
  on_first(group, [&] {
    for (const Candidate& candidate : candidates(env, root)) names.push_back(candidate.name);
  });
  names = nlohmann::json::parse(broadcast(group, names.dump()));
  std::vector<std::string> damage;
  for (const std::string name : names) {
    try {
      Checkpoint checkpoint = open_checkpoint(env, root + "/" + name, group);
      for (const std::string& what : damage) warn(what + "; using " + name);
      return checkpoint;
    } catch (const CommError&) {
      throw;
    } catch (const NewerFormat&) {
      throw;
    } catch (const Error& error) {
      damage.push_back(error.what());
    }
  }
  if (damage.empty()) return std::nullopt;
  fail("{}: no checkpoint is intact:\n  {}\nRestore one from a copy, or start afresh in another log.run_dir.",
       root, fmt::join(damage, "\n  "));
}

}  // namespace weft
