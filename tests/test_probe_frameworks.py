"""transformers, accelerate, vLLM, and the frameworks that time themselves, each on a stand-in with its signatures.

verl, SkyRL, NeMo-RL, slime, OpenRLHF and prime-rl need Ray and GPUs: here they are fixtures only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import probe_fixtures as fixtures
from probed import Probed, run_probed, write_package

if TYPE_CHECKING:
    from pathlib import Path


def run_with(tmp_path: Path, code: str, *files: dict[str, str]) -> Probed:
    """Run a script with these stand-ins; no error, no trouble."""
    for each in files:
        write_package(tmp_path, each)
    done = run_probed(tmp_path, code)
    assert (done.status, done.err, done.troubles()) == (0, "", [])
    return done


def phases(done: Probed) -> list[tuple[str, str | None]]:
    """Name and phase of the spans in order of their start."""
    return [
        (row["n"], row.get("ph")) for row in sorted(done.main.of("span"), key=lambda r: (r["a"], -r["b"]))
    ]


def test_a_plain_trainer_has_steps_without_trl(tmp_path: Path) -> None:
    """The callback handler's own calls give the steps; evaluation and checkpoints are phases and events."""
    code = "from transformers.trainer import Trainer\nTrainer(micro=1).train(steps=1, save_at=1, eval_at=1)\n"
    done = run_with(tmp_path, code, fixtures.ACCELERATE, fixtures.TRANSFORMERS)
    assert phases(done) == [
        ("step", None), ("training_step", None), ("compute_loss", "forward"), ("backward", "backward"),
        ("clip_grad_norm_", "optimizer"), ("optimizer", "optimizer"), ("log", "other"), ("_save_checkpoint", "checkpoint"),
        ("evaluate", "eval"),
    ]  # fmt: skip
    assert done.main.events() == ["checkpoint", "eval"]
    assert [(row["n"], row["v"]) for row in done.main.of("scalar")] == [("loss", 0.5), ("reward", 2)]
    step = done.main.span("step")
    assert (step["step"], step["f"].endswith("transformers/trainer.py")) == (0, True)


def test_a_loop_of_ones_own_on_accelerate(tmp_path: Path) -> None:
    """Each of accelerate's calls by its name, once even where one calls the other; the call site is the user's line."""
    code = """
        from accelerate import Accelerator
        from accelerate.optimizer import AcceleratedOptimizer
        from accelerate.utils import gather, broadcast_object_list
        a = Accelerator()
        a.backward([]); a.clip_grad_norm_([], 1.0); AcceleratedOptimizer().step()
        print(a.gather(1), a.gather_for_metrics(2), gather(3), broadcast_object_list([4]))
        a.wait_for_everyone(); a.save_state("x")
    """
    done = run_with(tmp_path, code, fixtures.ACCELERATE)
    assert done.out == "[1] [2] [3] [4]\n"
    assert phases(done) == [
        ("backward", "backward"), ("clip_grad_norm_", "optimizer"), ("optimizer", "optimizer"), ("gather", None), ("gather", None),
        ("gather", None), ("broadcast_object_list", "collective_wait"), ("wait_for_everyone", "collective_wait"),
        ("save_state", "checkpoint"),
    ]  # fmt: skip
    assert {row["f"] for row in done.main.of("span")} == {str(tmp_path / "script.py")}


def test_vllm_counts_prompts_and_tokens(tmp_path: Path) -> None:
    """Three prompts of 3 tokens, completions of 1, 2 and 3; chat calls generate and is one span."""
    code = """
        from vllm.entrypoints.llm import LLM
        llm = LLM()
        llm.generate(["a", "b", "c"]); llm.chat(messages=["a", "b"])
        llm.sleep(level=2); llm.wake_up(tags=["weights"]); llm.collective_rpc("reload_weights")
        llm.collective_rpc(len)
    """
    done = run_with(tmp_path, code, fixtures.VLLM)
    assert phases(done) == [
        ("vLLM.generate", "generate"), ("vLLM.generate", "generate"), ("sleep", "other"), ("wake_up", "other"),
        ("collective_rpc", None), ("collective_rpc", None),
    ]  # fmt: skip
    extras = [row.get("x") for row in done.main.of("span")]
    assert extras[0] == {"prompts": 3, "tokens_in": 9, "tokens_out": 6, "completions": 3, "longest": 3}
    assert extras[1] == {"prompts": 2, "tokens_in": 6, "tokens_out": 3, "completions": 2, "longest": 2}
    assert extras[-2:] == [{"method": "reload_weights"}, {"method": "len"}]
    assert done.main.events() == ["sleep", "wake"]
    assert done.main.of("meta")[-1]["role"] == "engine"


def test_vllms_running_batch_is_sampled(tmp_path: Path) -> None:
    """The first step of a batch and the last, when nothing runs any more; not each of a thousand steps in between."""
    code = """
        from vllm.v1.core.sched.scheduler import Scheduler
        s = Scheduler()
        s.running, s.waiting = [1] * 8, [1] * 2
        for _ in range(1000): s.update_from_output(None, None)
        s.running, s.waiting = [], []
        s.update_from_output(None, None)
    """
    scalars = run_with(tmp_path, code, fixtures.VLLM).main.of("scalar")
    running = [row["v"] for row in scalars if row["n"] == "vllm/running"]
    waiting = [row["v"] for row in scalars if row["n"] == "vllm/waiting"]
    rates = [row["v"] for row in scalars if row["n"] == "vllm/tokens_per_s"]
    assert (running[0], running[-1], waiting[0], waiting[-1]) == (8, 0, 2, 0)
    assert (2 <= len(running) < 100, rates[-1] > 0) == (True, True)


def test_vllms_speculative_tokens_are_all_counted(tmp_path: Path) -> None:
    """With speculative decoding a request may get several tokens a step."""
    code = """
        from vllm.v1.core.sched.scheduler import Scheduler
        from dipstick_probe.hooks import vllm as hook
        s = Scheduler(); s.running = [1] * 4
        s.update_from_output(None, None); hook._batch.tokens = 0
        s.update_from_output(None, None); plain = hook._batch.tokens
        s.num_spec_tokens = 1
        s.update_from_output(None, None); print(plain, hook._batch.tokens - plain)
    """
    assert run_with(tmp_path, code, fixtures.VLLM).out == "4 8\n"


def test_vllms_async_engine(tmp_path: Path) -> None:
    """Its methods stay coroutine functions, and their results their own."""
    code = """
        import asyncio, inspect
        from vllm.v1.engine.async_llm import AsyncLLM
        engine = AsyncLLM()
        print(inspect.iscoroutinefunction(engine.sleep), asyncio.run(engine.sleep()), asyncio.run(engine.collective_rpc("m")))
        asyncio.run(engine.wake_up())
    """
    done = run_with(tmp_path, code, fixtures.VLLM)
    assert (done.out, [name for name, _ in phases(done)]) == (
        "True slept m\n",
        ["sleep", "collective_rpc", "wake_up"],
    )


VERL = {
    "verl/__init__.py": "__version__ = '0.9.1'\n",
    "verl/utils/profiler/performance.py": """
        from contextlib import contextmanager
        def _timer(name: str, timing_raw: dict):
            yield
            timing_raw[name] = timing_raw.get(name, 0) + 1
        @contextmanager
        def simple_timer(name, timing_raw): yield from _timer(name, timing_raw)
        @contextmanager
        def marked_timer(name, timing_raw, color=None, domain=None, category=None): yield from _timer(name, timing_raw)
    """,
    "verl/utils/tracking.py": """
        from contextlib import contextmanager
        class RLInsightLogger:
            @classmethod
            @contextmanager
            def trace_state(cls, state_name, *, state_lane_id=None, **labels):
                yield
    """,
}


def test_verls_driver(tmp_path: Path) -> None:
    """Its timers become spans and its `step` the step; what they accumulate is verl's own."""
    code = """
        from verl.utils.profiler.performance import marked_timer, simple_timer
        for number in range(2):
            raw = {}
            with marked_timer("step", raw):
                with marked_timer("gen", raw, color="red"): pass
                with simple_timer("reward", raw): pass
                with marked_timer("update_actor", raw): pass
                with marked_timer("update_weights", raw): pass
        with marked_timer("save_checkpoint", raw): pass
        print(sorted(raw.items()))
        try:
            with marked_timer("ref", raw): raise ValueError("mine")
        except ValueError as error: print(error)
    """
    done = run_with(tmp_path, code, VERL)
    assert done.out.splitlines() == [
        "[('gen', 1), ('reward', 1), ('save_checkpoint', 1), ('step', 1), ('update_actor', 1), ('update_weights', 1)]", "mine",
    ]  # fmt: skip
    one = [
        ("step", None),
        ("gen", "generate"),
        ("reward", "reward"),
        ("update_actor", "backward"),
        ("update_weights", "weight_sync"),
    ]
    assert phases(done) == [*one, *one, ("save_checkpoint", "checkpoint"), ("ref", "logprobs")]
    assert [row["step"] for row in done.main.of("span") if row["n"] == "step"] == [0, 1]
    assert done.main.events() == ["weight_sync", "weight_sync", "checkpoint"]


def test_verls_workers_are_ranks(tmp_path: Path) -> None:
    """The lane names the rank; a replica is an engine."""
    code = """
        from verl.utils.tracking import RLInsightLogger
        with RLInsightLogger.trace_state("actor_update", state_lane_id="rank_5"): pass
        with RLInsightLogger.trace_state("vllm_generate", state_lane_id="replica_1"): pass
    """
    done = run_with(tmp_path, code, VERL)
    assert phases(done) == [("actor_update", "backward"), ("vllm_generate", "generate")]
    assert (done.main.of("meta")[-1]["rank"], done.main.of("meta")[-1]["role"]) == (5, "trainer+engine")


SKYRL = {
    "skyrl/__init__.py": "__version__ = '0.4.0'\n",
    "skyrl/train/utils/utils.py": """
        class Timer:
            def __init__(self, message, update_dict=None): self.message, self.update_dict = message, update_dict
            def __enter__(self): return self
            def __exit__(self, exc_type, exc_val, exc_tb): self.done = True
            async def __aenter__(self): return self
            async def __aexit__(self, exc_type, exc_val, exc_tb): self.done = True
    """,
}


def test_skyrls_driver_sync_and_async(tmp_path: Path) -> None:
    """`with` and `async with`, nested as in its loop; exceptions pass."""
    code = """
        import asyncio
        from skyrl.train.utils.utils import Timer
        async def loop():
            with Timer("step", {}) as t:
                async with Timer("generate", {}) as g: await asyncio.sleep(0)
                with Timer("train_critic_and_policy", {}):
                    with Timer("policy_train", {}): pass
                with Timer("sync_weights", {}): pass
            print(t.message, g.done)
        asyncio.run(loop())
        try:
            with Timer("eval"): raise OSError("mine")
        except OSError as error: print(error)
    """
    done = run_with(tmp_path, code, SKYRL)
    assert done.out == "step True\nmine\n"
    assert phases(done) == [
        ("step", None), ("generate", "generate"), ("train_critic_and_policy", "backward"), ("policy_train", "backward"),
        ("sync_weights", "weight_sync"), ("eval", "eval"),
    ]  # fmt: skip
    assert done.main.events() == ["weight_sync", "eval"]


NEMO = {
    "nemo_rl/__init__.py": "",
    "nemo_rl/utils/timer.py": """
        from contextlib import contextmanager
        class Timer:
            def __init__(self, context=None): self._start_times, self._timers = {}, {}
            def start(self, label, should_log=True):
                if label in self._start_times: raise ValueError('runs')
                self._start_times[label] = 1
            def stop(self, label, should_log=True):
                if label not in self._start_times: raise ValueError('does not run')
                del self._start_times[label]
                return 0.5
            @contextmanager
            def time(self, label, should_log=True):
                self.start(label, should_log)
                try: yield
                finally: self.stop(label, should_log)
        class ThreadSafeTimer(Timer):
            def start(self, label, should_log=True): super().start(label, should_log)
            def stop(self, label, should_log=True): return super().stop(label, should_log)
    """,
}


def test_nemo_rls_driver(tmp_path: Path) -> None:
    """Labels may overlap, a subclass calls its parent's, and a label that runs already raises as it would."""
    code = """
        from nemo_rl.utils.timer import Timer, ThreadSafeTimer
        timer = ThreadSafeTimer()
        with timer.time("total_step_time"):
            timer.start("generation"); timer.start("reward_calculation")
            print(timer.stop("generation"), timer.stop("reward_calculation"))
            with Timer().time("checkpointing"): pass
        try: timer.stop("never")
        except ValueError as error: print(error)
    """
    done = run_with(tmp_path, code, NEMO)
    assert done.out == "0.5 0.5\ndoes not run\n"
    assert phases(done) == [
        ("step", None), ("generation", "generate"), ("reward_calculation", "reward"), ("checkpointing", "checkpoint"),
    ]  # fmt: skip


SLIME = {
    "slime/__init__.py": "",
    "slime/utils/timer.py": """
        class Timer:
            def start(self, name): pass
            def end(self, name): return name
    """,
}


def test_slimes_ranks(tmp_path: Path) -> None:
    """`train` is the step; `train_wait` is everything outside it, a container around sleep, wake and update."""
    code = """
        from slime.utils.timer import Timer
        t = Timer()
        t.start("train_wait"); t.start("update_weights"); t.end("update_weights"); t.end("train_wait")
        t.start("train"); t.start("actor_train"); print(t.end("actor_train")); t.end("train")
        t.end("never started")
    """
    done = run_with(tmp_path, code, SLIME)
    assert done.out == "actor_train\n"
    assert phases(done) == [
        ("train_wait", None), ("update_weights", "weight_sync"), ("step", None), ("actor_train", "backward"),
    ]  # fmt: skip


OPENRLHF = {
    "openrlhf/__init__.py": "__version__ = '0.11.2'\n",
    "openrlhf/trainer/ppo_utils/samples_generator.py": """
        class SamplesGenerator:
            def generate_samples(self, **generate_kwargs): return ['sample']
    """,
    "openrlhf/trainer/ppo_utils/experience_maker.py": """
        class RemoteExperienceMaker:
            def make_experience_batch(self, rollout_samples): return rollout_samples
    """,
    "openrlhf/trainer/ppo_trainer.py": """
        from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
        from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
        class BasePPOTrainer:
            def train_step(self, rollout_samples, global_step):
                RemoteExperienceMaker().make_experience_batch(rollout_samples)
                self.ppo_train(global_step)
                self.broadcast_to_vllm()
                return {}, global_step + 1
            def ppo_train(self, global_steps): return {}
            def broadcast_to_vllm(self): pass
            def save_logs_and_checkpoints(self, global_step, logs_dict=None, client_states=None): pass
        class PPOTrainer(BasePPOTrainer):
            def fit(self, global_step=0):
                for _ in range(2):
                    samples = SamplesGenerator().generate_samples(temperature=1.0)
                    status, global_step = self.train_step(samples, global_step)
                    self.save_logs_and_checkpoints(global_step)
                return global_step
    """,
}


def test_openrlhfs_driver(tmp_path: Path) -> None:
    """A step is its rollout and its training; saving follows it."""
    code = "from openrlhf.trainer.ppo_trainer import PPOTrainer\nprint(PPOTrainer().fit())\n"
    done = run_with(tmp_path, code, OPENRLHF)
    one = [
        ("step", None), ("generate_samples", "generate"), ("train_step", None), ("make_experience_batch", "logprobs"),
        ("ppo_train", "backward"), ("broadcast_to_vllm", "weight_sync"), ("save_logs_and_checkpoints", "checkpoint"),
    ]  # fmt: skip
    assert (done.out, phases(done)) == ("2\n", one * 2)
    assert [row["step"] for row in done.main.of("span") if row["n"] == "step"] == [0, 1]


PRIME = {
    "prime_rl/__init__.py": "",
    "prime_rl/utils/monitor/file.py": """
        class FileMonitor:
            def log(self, metrics, step): self.row = {'step': step, **metrics}
    """,
}


def test_prime_rls_monitor(tmp_path: Path) -> None:
    """Its numbers are scalars; `time/step` is the step's span, which has just ended."""
    code = """
        from prime_rl.utils.monitor.file import FileMonitor
        m = FileMonitor()
        m.log({"time/step": 2.0, "time/wait_for_batch": 0.5, "note": "x"}, 7)
        m.log({"reward/mean": 0.1}, 8)
        print(m.row)
    """
    done = run_with(tmp_path, code, PRIME)
    step = done.main.span("step")
    assert (done.out, step["b"] - step["a"], step["step"], step["x"]) == (
        "{'step': 8, 'reward/mean': 0.1}\n", 2 * 10**9, 7, {"from": "time/step"},
    )  # fmt: skip
    assert [(row["step"], row["n"], row["v"]) for row in done.main.of("scalar")] == [
        (7, "time/step", 2.0), (7, "time/wait_for_batch", 0.5), (8, "reward/mean", 0.1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "module"),
    [
        (VERL, "verl.utils.profiler.performance"), (VERL, "verl.utils.tracking"), (SKYRL, "skyrl.train.utils.utils"),
        (NEMO, "nemo_rl.utils.timer"), (SLIME, "slime.utils.timer"), (OPENRLHF, "openrlhf.trainer.ppo_trainer"),
        (PRIME, "prime_rl.utils.monitor.file"), (fixtures.VLLM, "vllm.entrypoints.llm"), (fixtures.VLLM, "vllm.v1.engine.async_llm"),
    ],
)  # fmt: skip
def test_every_hook_of_these_modules_finds_its_target(
    tmp_path: Path, files: dict[str, str], module: str
) -> None:
    """The stand-ins have the signatures the hooks need, and hooks come off again."""
    code = f"""
        import importlib
        module = importlib.import_module("{module}")
        from dipstick_probe import boot, patch
        owners = [(bound.owner, bound.name) for bound in patch._bound if bound.owner.__module__ == "{module}"]
        marked = [hasattr(getattr(vars(o)[n], "__func__", vars(o)[n]), "__dipstick__") for o, n in owners if n in vars(o)]
        boot.stop()
        left = [hasattr(getattr(vars(o)[n], "__func__", vars(o)[n]), "__dipstick__") for o, n in owners if n in vars(o)]
        print(all(marked), any(left))
    """.replace("bound.owner.__module__", "getattr(bound.owner, '__module__', bound.owner.__name__)")
    done = run_with(tmp_path, code, fixtures.ACCELERATE, fixtures.TRANSFORMERS, files)
    hooks = {target: hook for target, hook in done.main.hooks().items() if target.startswith(module + ":")}
    assert (done.out, [hook for hook in hooks.values() if not hook["bound"]]) == ("True False\n", [])
    assert len(hooks) > 0
