// weft train
#include "weft/commands/command.h"
#include "weft/entry.h"
#include "weft/train/process.h"
#include "weft/train/trainer.h"

int weft_train(const weft::Config& config) {
  return weft::guarded([&] {
    weft::catch_stop_signals();
    weft::set_up_process(config.train.threads);
    weft::Trainer(config, weft::Env::system()).run();
    return 0;
  });
}
