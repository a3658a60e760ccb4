#include "weft/report/report.h"

#include <cctype>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"

#include "tests/base/error_of.h"
#include "tests/base/temporary_dir.h"
#include "tests/report/run_dir.h"

namespace weft {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// What is wrong with the nesting of a page's elements: "" if nothing is.
std::string nesting_problem(const std::string& page) {
  const std::set<std::string> without_end = {"meta", "!doctype"}, without_tags = {"style", "script"};
  std::vector<std::string> open;
  for (size_t at = 0; (at = page.find('<', at)) != std::string::npos;) {
    const size_t end = page.find('>', at);
    const bool closes = page[at + 1] == '/';
    const size_t name_at = at + (closes ? 2 : 1);
    const std::string name = page.substr(name_at, page.find_first_of(" >\n", name_at) - name_at);
    if (end == std::string::npos || name.empty() || (!std::isalpha(name[0]) && name[0] != '!'))
      return "a bare <";
    at = end;
    if (without_end.contains(name)) continue;
    if (!closes) {
      open.push_back(name);
      if (without_tags.contains(name)) at = page.find("</" + name, at);
    } else if (open.empty() || open.back() != name) {
      return fmt::format("</{}> closes {}", name, open.empty() ? "nothing" : "<" + open.back() + ">");
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> stays open";
}

TEST(Nesting, IsChecked) {
  EXPECT_EQ(nesting_problem("<!doctype html><p>a<b>c</b></p><script>1<2</script>"), "");
  EXPECT_EQ(nesting_problem("<p><b></p></b>"), "</p> closes <b>");
  EXPECT_EQ(nesting_problem("<p>"), "<p> stays open");
  EXPECT_EQ(nesting_problem("<p>1 < 2</p>"), "a bare <");
}

class Report : public testing::Test {
 protected:
  TemporaryDir dir;
  Env& env = Env::system();
  Config config;

  std::string page_of(const std::vector<std::string>& names) {
    std::vector<std::string> dirs;
    for (const auto& name : names) dirs.push_back(dir / name);
    std::string page = report_page(read_runs(env, dirs));
    EXPECT_EQ(nesting_problem(page), "");
    EXPECT_THAT(page, AllOf(Not(HasSubstr("http://")), Not(HasSubstr("https://")), Not(HasSubstr("src="))));
    return page;
  }

  static json data_of(const std::string& page) {
    const std::string start = "id=\"data\">";
    const size_t begin = page.find(start) + start.size();
    return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  }

  static json chart(const json& data, const std::string& id) {
    for (const auto& each : data["charts"])
      if (each["id"] == id) return each;
    return nullptr;
  }
};

TEST_F(Report, HasASectionForAllThatARunLeaves) {
  config.log.run_dir = "runs/one";
  write_run(dir / "one", config, 40, [](auto& line) {
    if (line["step"] == 7) line["skipped"] = "the gradient norm 9.9 is above 5 times its mean";
    line["global_batch"] = line["step"] < 9 ? 2 : 4, line["weight_decay"] = 0.1;
    if (line["step"].template get<int>() % 20 != 0) return;
    line["valid_loss"] = 1.5, line["baseline"] = 4.25, line["valid_loss_ema"] = 1.25;
    line["valid_loss/books"] = 1.75;
  });
  write_sample(dir / "one", 40, "Once", " upon a time");
  std::ofstream(dir / "one/op_times.json") << R"({"steps": 10, "seconds": 4.0, "ops": [
        {"op": "linear", "kind": "mlp", "pass": "forward", "calls": 120, "seconds": 2.0, "flops": 5e11, "bytes": 3e9},
        {"op": "adamw", "kind": "optimizer", "pass": "update", "calls": 10, "seconds": 1.0, "flops": 0, "bytes": 8e9}]})";
  const std::string page = page_of({"one"});
  EXPECT_THAT(page, HasSubstr("<h1>one</h1>"));
  EXPECT_THAT(page,
              HasSubstr("<div class=\"label\">Validation loss</div><div class=\"number\">1.5000</div>"));
  EXPECT_THAT(page, HasSubstr("the model is 2.75 better"));
  EXPECT_THAT(page, HasSubstr("of 1,000, 1 skipped"));
  EXPECT_THAT(page, HasSubstr("1 min 20 s"));
  // half of the 4 s is the mlp's, and the second that no op explains is "other"
  EXPECT_THAT(page, HasSubstr("mlp</td><td class=\"n\">200.00</td><td class=\"n\">50.0%"));
  EXPECT_THAT(page, HasSubstr("other</td><td class=\"n\">100.00</td><td class=\"n\">25.0%"));
  EXPECT_THAT(page, HasSubstr("<td class=\"n\">250.0</td><td class=\"n\">1.5</td>")) << "GFLOP/s, GB/s";
  EXPECT_THAT(page, HasSubstr("<b>Once</b> upon a time"));
  EXPECT_THAT(page, HasSubstr("<b>&quot;runs/one&quot;</b>"));

  const json data = data_of(page), loss = chart(data, "loss");
  std::vector<std::string> ids;
  for (const auto& each : data["charts"]) ids.push_back(each["id"]);
  EXPECT_THAT(ids, ElementsAre("loss", "sources", "lr", "grad_norm", "speed", "mfu", "memory", "weight_decay",
                               "batch"));
  EXPECT_EQ(loss["series"][0]["style"], "raw");
  EXPECT_EQ(loss["series"][0]["step"].size(), 39u) << "without the skipped step";
  EXPECT_EQ(loss["series"][0]["y"][1], 5.0);
  EXPECT_EQ(loss["series"][2]["name"], "validation");
  EXPECT_EQ(loss["series"][2]["step"], json({20, 40}));
  EXPECT_EQ(loss["series"][2]["tokens"], json({2000, 4000}));
  EXPECT_NEAR(loss["series"][2]["hours"][0].get<double>(), 40 / 3600.0, 1e-6);
  EXPECT_EQ(loss["levels"], json::parse(R"([{"name": "bigram baseline", "value": 4.25, "run": -1}])"));
  EXPECT_EQ(loss["skips"][0]["step"], 7);
  EXPECT_EQ(chart(data, "grad_norm")["levels"][0]["value"], 1.0);
  EXPECT_EQ(chart(data, "mfu")["series"][1]["y"][0], 25);
}

TEST_F(Report, LeavesOutWhatARunDoesNotHave) {
  write_run(dir / "bare", config, 3);
  const std::string page = page_of({"bare"});
  EXPECT_THAT(page, AllOf(Not(HasSubstr("Where the time goes")), Not(HasSubstr("What the model writes")),
                          Not(HasSubstr("Bigram baseline")), Not(HasSubstr("id=\"plot-sources\"")),
                          Not(HasSubstr("id=\"plot-batch\""))));
  env.remove_all(dir / "bare/config.toml");
  EXPECT_THAT(page_of({"bare"}), Not(HasSubstr("<h2>Config</h2>")));
}

TEST_F(Report, LaysRunsOverEachOther) {
  write_run(dir / "wide", config, 30, [](auto& line) { line["baseline"] = 4.0; });
  config.model.dim = 512, config.optim.clip_norm = 2;
  write_run(dir / "deep/run", config, 20, [](auto& line) { line["baseline"] = 4.0; });
  config.model.dim = 256;
  write_run(dir / "flat/run", config, 20, [](auto& line) { line["baseline"] = 4.0; });
  const std::string page = page_of({"wide", "deep/run", "flat/run/"});
  const json data = data_of(page), loss = chart(data, "loss");
  EXPECT_EQ(data["runs"], json({"wide", "deep/run", "flat/run"})) << "as much of the path as is needed";
  EXPECT_EQ(loss["series"].size(), 6u);
  for (const auto& series : loss["series"]) EXPECT_EQ(series["colour"], series["run"]);
  EXPECT_EQ(loss["levels"].size(), 1u) << "one baseline for all";
  const json clips = chart(data, "grad_norm")["levels"];
  EXPECT_EQ(clips, json::parse(R"([{"name": "clipped above of wide", "value": 1.0, "run": 0},
                                   {"name": "clipped above of 2 runs", "value": 2.0, "run": -1}])"));
  // 512 is chosen, 256 is the default
  const size_t differ = page.find("Where the runs differ");
  ASSERT_NE(differ, std::string::npos);
  EXPECT_THAT(
      page.substr(differ),
      HasSubstr(">model.dim</td><td><span>256</span></td><td><b>512</b></td><td><span>256</span></td>"));
  EXPECT_THAT(page.substr(differ, page.find("more keys") - differ), Not(HasSubstr("optim.beta1")));
}

TEST_F(Report, EscapesWhatOthersWrote) {
  config.data.train = {"</script><img>"};
  const std::string name = "run<b>&\"";
  write_run(dir / name, config, 25,
            [](auto& line) { line["skipped"] = "</script><script>alert(1)</script>"; });
  write_sample(dir / name, 25, "<b>", "</pre></script>\x1b & \xff");
  const std::string page = page_of({name});
  EXPECT_THAT(page, HasSubstr("<h1>run&lt;b&gt;&amp;&quot;</h1>"));
  EXPECT_THAT(page, HasSubstr("<pre><b>&lt;b&gt;</b>&lt;/pre&gt;&lt;/script&gt; &amp; \xef\xbf\xbd</pre>"));
  EXPECT_THAT(page, HasSubstr("&lt;/script&gt;&lt;img&gt;"));
  EXPECT_EQ(data_of(page)["runs"][0], name);
  EXPECT_EQ(chart(data_of(page), "loss")["skips"][0]["reason"], "</script><script>alert(1)</script>");
}

TEST_F(Report, ALongRunMakesAShortPage) {
  write_run(dir / "long", config, 100000, [](auto& line) {
    if (line["step"] == 77777) line["loss"] = 99.5;
  });
  const std::string page = page_of({"long"});
  EXPECT_LT(page.size(), 500000u);
  const auto raw = chart(data_of(page), "loss")["series"][0];
  EXPECT_LE(raw["y"].size(), 800u);
  EXPECT_EQ(std::count(raw["y"].begin(), raw["y"].end(), 99.5), 1) << "spikes stay";
  EXPECT_EQ(raw["step"][0], 1);
}

TEST_F(Report, TakesTornLinesAndNumbersThatAreNotFinite) {
  write_run(dir / "run", config, 4, [](auto& line) {
    if (line["step"] == 2) line["loss"] = nullptr;
  });
  std::ofstream(metrics_path(dir / "run"), std::ios::app) << R"({"step": 5, "loss": 1)";
  EXPECT_EQ(chart(data_of(page_of({"run"})), "loss")["series"][0]["step"], json({1, 3, 4}));
  write_run(dir / "nan", config, 4, [](auto& line) { line["loss"] = nullptr; });
  EXPECT_EQ(chart(data_of(page_of({"nan"})), "loss")["series"].size(), 0u);
}

TEST_F(Report, NamesEveryDirectoryThatIsNoRun) {
  write_run(dir / "run", config, 3);
  write_run(dir / "new", config, 0);
  env.create_dirs(dir / "empty");
  EXPECT_THAT(error_of([&] {
                read_runs(env, {dir / "run", dir / "none", dir / "empty", dir / "run/../run/"});
              }),
              AllOf(HasSubstr("none does not exist"), HasSubstr("empty is no run directory"),
                    HasSubstr("run/../run/ is named twice"), Not(HasSubstr(dir / "run "))));
  EXPECT_THAT(error_of([&] {
                read_runs(env, {dir / "run", dir / "new"});
              }),
              HasSubstr("new has no metrics yet"));
  std::ofstream(dir / "run/op_times.json") << R"({"steps": 3, "seconds": 1.0, "ops": [{"op": 5}]})";
  EXPECT_THAT(error_of([&] { read_runs(env, {dir / "run"}); }), HasSubstr("op_times.json is damaged"));
}

}  // namespace
}  // namespace weft
