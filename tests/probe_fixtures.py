"""Stand-ins for the frameworks, with their signatures and the order of their calls, and nothing else of theirs.

Each is a set of modules for :func:`probed.write_package`, and a script that trains with it.
"""

from __future__ import annotations

ACCELERATE = {
    "accelerate/__init__.py": "__version__ = '1.15.0'\nfrom .accelerator import Accelerator\n",
    "accelerate/utils/__init__.py": "from .operations import gather, gather_object, broadcast_object_list\n",
    "accelerate/utils/operations.py": """
        def gather(tensor): return [tensor]
        def gather_object(object): return list(object)
        def broadcast_object_list(object_list, from_process=0): return object_list
    """,
    "accelerate/accelerator.py": """
        from .utils.operations import gather
        class Accelerator:
            is_main_process = True
            def backward(self, loss, **kwargs): loss.append('b')
            def gather(self, tensor): return gather(tensor)
            def gather_for_metrics(self, input_data, use_gather_object=False): return self.gather(input_data)
            def clip_grad_norm_(self, parameters, max_norm, norm_type=2): return 1.0
            def wait_for_everyone(self): pass
            def save_state(self, output_dir=None, safe_serialization=True, **kw): pass
    """,
    "accelerate/optimizer.py": """
        class AcceleratedOptimizer:
            def step(self, closure=None): pass
    """,
}

TRANSFORMERS = {
    "transformers/__init__.py": "__version__ = '5.17.0'\n",
    "transformers/trainer_callback.py": """
        class CallbackHandler:
            def on_step_begin(self, args, state, control, **kwargs): return control
            def on_step_end(self, args, state, control, **kwargs): return control
    """,
    "transformers/trainer.py": """
        from types import SimpleNamespace
        from accelerate import Accelerator
        from accelerate.optimizer import AcceleratedOptimizer
        from .trainer_callback import CallbackHandler
        class Trainer:
            def __init__(self, micro=2):
                self.accelerator, self.optimizer, self.callback_handler = Accelerator(), AcceleratedOptimizer(), CallbackHandler()
                self.state = SimpleNamespace(global_step=0)
                self.args = SimpleNamespace(report_to=[])
                self.micro = micro
            def train(self, steps=2, save_at=1, eval_at=None):
                for _ in range(steps):
                    self.callback_handler.on_step_begin(self.args, self.state, 'control')
                    for _ in range(self.micro): self.training_step('model', 'inputs')
                    self.accelerator.clip_grad_norm_([], 1.0)
                    self.optimizer.step()
                    self.state.global_step += 1
                    self.callback_handler.on_step_end(self.args, self.state, 'control')
                    self.log({'loss': 0.5, 'note': 'text', 'reward': 2})
                    if self.state.global_step == save_at: self._save_checkpoint('model', None)
                    if self.state.global_step == eval_at: self.evaluate()
            def training_step(self, model, inputs, num_items_in_batch=None):
                inputs = self._prepare_inputs(inputs)
                loss = self.compute_loss(model, inputs)
                self.accelerator.backward(loss)
                return loss
            def _prepare_inputs(self, inputs): return inputs
            def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None): return ['l']
            def _save_checkpoint(self, model, trial): pass
            def evaluate(self, eval_dataset=None): return {}
            def log(self, logs, start_time=None): self.logged = logs
    """,
}

_PROFILER_CLASS = """
    import functools, time
    class ProfilingContext:
        def __init__(self, name, report_to, is_main_process=True, step=None, metric_prefix='profiling/Time taken'):
            self.name = name
            self._start_time = None
        def __enter__(self):
            self._start_time = time.perf_counter()
            return self
        def __exit__(self, exc_type, exc_val, exc_tb): return False
    def profiling_context(trainer, name):
        return ProfilingContext(f"{trainer.__class__.__name__}.{name}", trainer.args.report_to)
"""
_PROFILER_FUNCTION = """
    import contextlib, functools
    @contextlib.contextmanager
    def profiling_context(trainer, name):
        yield
"""
_DECORATOR = """
    def profiling_decorator(func):
        @functools.wraps(func)
        def wrapper(self, *args, **kwargs):
            with profiling_context(self, func.__name__):
                return func(self, *args, **kwargs)
        return wrapper
"""
_HEAD = """
    import asyncio, inspect
    from accelerate.utils import gather, gather_object
    from transformers.trainer import Trainer
    from ..extras.profiling import profiling_context, profiling_decorator
"""
_INIT = """
    class GRPOTrainer(Trainer):
        def __init__(self, reward_funcs, **kwargs):
            super().__init__(**kwargs)
            self.reward_funcs = reward_funcs
            self.reward_func_names = [f.__name__ for f in reward_funcs]
            self._step = 0
"""
_CALCULATE = """
        @profiling_decorator
        def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
            rewards, later = [], []
            for func, name in zip(self.reward_funcs, self.reward_func_names):
                if inspect.iscoroutinefunction(func): later.append((func, name))
                else:
                    with profiling_context(self, name): rewards.append(func(completions=completions))
            async def one(func, name):
                with profiling_context(self, name): return await func(completions=completions)
            async def every(): return await asyncio.gather(*[one(f, n) for f, n in later])
            if later: rewards += asyncio.run(every())
            return gather(rewards)
"""
_COMMON = """
        @profiling_decorator
        def _prepare_inputs(self, generation_batch):
            if self._step % self.micro == 0: self.seen = self._generate_and_score_completions(generation_batch)
            self._step += 1
            return self.seen
        @profiling_decorator
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return self.{logps}(model, inputs) + ['loss']
        def log(self, logs, start_time=None): super().log({{**logs, 'extra': 3}}, start_time)
        def _save_checkpoint(self, model, trial): super()._save_checkpoint(model, trial)
        @profiling_decorator
        def {logps}(self, model, inputs): return ['logps']
"""
_TEXTS = "prompts, completions = ['p'] * 4, ['ab', 'cd', 'é', '']"

# --- 0.18: rewards inside the one method, a function as profiler -----------------------------------------------------
TRL_0_18 = {
    "trl/__init__.py": "__version__ = '0.18.2'\n",
    "trl/extras/profiling.py": _PROFILER_FUNCTION + _DECORATOR,
    "trl/trainer/grpo_trainer.py": _HEAD + _INIT + _COMMON.format(logps="_get_per_token_logps") + f"""
        @profiling_decorator
        def _move_model_to_vllm(self): pass
        def _generate_and_score_completions(self, inputs):
            self._move_model_to_vllm()
            {_TEXTS}
            with profiling_context(self, 'vLLM.generate'): pass
            self._get_per_token_logps('model', inputs)
            rewards = []
            for func, name in zip(self.reward_funcs, self.reward_func_names):
                with profiling_context(self, name): rewards.append(func(completions=completions))
            gather(rewards)
            gather_object(prompts)
            return rewards
    """,
}  # fmt: skip

# --- 0.24: _calculate_rewards and _generate are methods, the logps were renamed ---------------------------------------
TRL_0_24 = {
    "trl/__init__.py": "__version__ = '0.24.0'\n",
    "trl/extras/profiling.py": _PROFILER_FUNCTION + _DECORATOR,
    "trl/trainer/grpo_trainer.py": _HEAD + _INIT + _COMMON.format(logps="_get_per_token_logps_and_entropies") + _CALCULATE + f"""
        @profiling_decorator
        def _move_model_to_vllm(self): pass
        def _generate(self, prompts): return self._generate_single_turn(prompts)
        def _generate_single_turn(self, prompts):
            self._move_model_to_vllm()
            with profiling_context(self, 'vLLM.generate'): return prompts
        def _generate_and_score_completions(self, inputs):
            {_TEXTS}
            self._generate(prompts)
            self.accelerator.gather([1])
            return self._calculate_rewards(inputs, prompts, completions, [[1]] * 4)
    """,
}  # fmt: skip

# --- 1.16: the profiler is a class, generation has a module of its own, training_step is TRL's --------------------------
TRL_1_16 = {
    "trl/__init__.py": "__version__ = '1.16.0'\n",
    "trl/extras/profiling.py": _PROFILER_CLASS + _DECORATOR,
    "trl/generation/vllm_generation.py": """
        from contextlib import nullcontext
        class VLLMGeneration:
            def __init__(self, llm): self.llm = llm
            def sync_weights(self): pass
            def generate(self, prompts, images, num_generations, profiler=None):
                with profiler or nullcontext():
                    return self.llm.generate(prompts)
    """,
    "trl/trainer/grpo_trainer.py": _HEAD + "    from ..generation.vllm_generation import VLLMGeneration\n" + _INIT + _COMMON.format(
        logps="_get_per_token_logps_and_entropies") + _CALCULATE + f"""
        def training_step(self, model, inputs, num_items_in_batch=None):
            return super().training_step(model, inputs, num_items_in_batch)
        def _generate(self, prompts): return self._generate_single_turn(prompts)
        def _generate_single_turn(self, prompts):
            from vllm.entrypoints.llm import LLM
            generation = VLLMGeneration(LLM())
            with profiling_context(self, 'sync_weights'): generation.sync_weights()
            return generation.generate(prompts, None, 1, profiler=profiling_context(self, 'vLLM.generate'))
        def _generate_and_score_completions(self, inputs):
            {_TEXTS}
            self._generate(prompts)
            self.accelerator.gather([1])
            return self._calculate_rewards(inputs, prompts, completions, [[1]] * 4)
    """,
}  # fmt: skip

VLLM = {
    "vllm/__init__.py": "__version__ = '0.31.0'\n",
    "vllm/v1/core/sched/scheduler.py": """
        from types import SimpleNamespace
        class Scheduler:
            def __init__(self): self.running, self.waiting, self.num_spec_tokens = [], [], 0
            def update_from_output(self, scheduler_output, model_runner_output):
                tokens = [SimpleNamespace(new_token_ids=[1, 2]) for _ in self.running]
                return {0: SimpleNamespace(outputs=tokens)}
    """,
    "vllm/v1/engine/async_llm.py": """
        class AsyncLLM:
            async def sleep(self, level=1): return 'slept'
            async def wake_up(self, tags=None): pass
            async def collective_rpc(self, method, timeout=None, args=(), kwargs=None): return method
    """,
    "vllm/entrypoints/llm.py": """
        from types import SimpleNamespace
        from vllm.v1.core.sched.scheduler import Scheduler
        class LLM:
            def __init__(self): self.scheduler = Scheduler()
            def generate(self, prompts, sampling_params=None, *, use_tqdm=True):
                self.scheduler.running = list(prompts)
                self.scheduler.update_from_output(None, None)
                self.scheduler.running = []
                self.scheduler.update_from_output(None, None)
                return [SimpleNamespace(prompt_token_ids=[1, 2, 3], outputs=[SimpleNamespace(token_ids=[0] * n)])
                        for n, _ in enumerate(prompts, 1)]
            def chat(self, messages, sampling_params=None): return self.generate(messages)
            def sleep(self, level=1): pass
            def wake_up(self, tags=None): pass
            def collective_rpc(self, method, timeout=None, args=(), kwargs=None): return [method]
    """,
}

GRPO_SCRIPT = """
import inspect
from trl.trainer.grpo_trainer import GRPOTrainer
def accuracy(completions, **_):
    return [len(text) for text in completions]
{more}
trainer = GRPOTrainer(reward_funcs=[accuracy{names}])
trainer.train()
print(trainer.logged, trainer.seen, inspect.iscoroutinefunction(trainer.reward_funcs[-1]), trainer.reward_funcs[0].__name__)
"""
