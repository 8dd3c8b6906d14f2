"""The built-in agent: a model and tools, round after round, until the model has nothing more to ask for.

It is a program like any other, keyed by turn: on replay a call is recognised by the turn it belongs to and not by what
was said, so instructions, tools and model may be changed while a run is paused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from checkrein.agents.answering import answer_with
from checkrein.agents.mcp.source import MCP, lending, verify_of
from checkrein.agents.naming import agent_name
from checkrein.agents.plan import PLAN_TOOL
from checkrein.agents.plan import SPEC as PLAN_SPEC
from checkrein.agents.play import Play
from checkrein.agents.retrying import RETRIES
from checkrein.agents.tool import Tool, Toolbox, is_program
from checkrein.agents.tooling import check_call, undo_call
from checkrein.agents.watchers.contract import Watching
from checkrein.core.conditions import DEFAULT, Condition
from checkrein.core.effects import Effect
from checkrein.core.events import Json
from checkrein.errors import MisuseError
from checkrein.models.messages import Settings, ToolSpec, as_json
from checkrein.models.port import Model
from checkrein.models.registry import resolve
from checkrein.runtime.driver import Driver
from checkrein.runtime.spec import Perform, Performance, Program, UndoneCall

if TYPE_CHECKING:
    import pydantic

_DELEGATION = as_json({"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]})


class Agent:
    """A model, its instructions and its tools.

    `plan` is the task list that a person sees: titles of steps, or True to have the model make it. `output` is a
    pydantic model, or another type, that the final answer must fit. `deps` is what tools find at
    `current_call().deps`: a value, or a function at the top level of a module that makes it in each process. Another
    agent among the tools is given a goal and works on it as a sub-run. Without `stop_when` an agent gets 50 turns and
    30 minutes.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | Model,
        instructions: str = "",
        tools: Sequence[Tool | MCP | Program | Callable[..., Any]] = (),
        plan: Sequence[str] | bool = (),
        stop_when: Condition | None = DEFAULT,
        output: Any = None,
        deps: Any = None,
        watchers: Sequence[Watching] = (),
        settings: Settings | None = None,
        retries: int = RETRIES,
    ) -> None:
        self.name = agent_name(name)
        self.instructions = instructions
        self.team: dict[str, Program] = {one.name: one for one in tools if is_program(one)}
        self.sources = tuple(one for one in tools if isinstance(one, MCP))
        """MCP servers. What tools they have is known when a run asks them."""
        own = [one for one in tools if not isinstance(one, MCP)]
        self.tools = Toolbox(name, own)
        self.plan = () if isinstance(plan, bool) else tuple(plan)
        self.has_plan = bool(plan)
        self.stop_when = stop_when
        self.output = output
        self.deps = deps
        self.watchers = tuple(watchers)
        self.settings = settings or Settings()
        self.retries = retries
        """How often a model that failed for a reason that may pass is asked again, before a person is."""
        self._model = model
        if len({*self.tools, *self.team}) < len(own):
            raise MisuseError(f"Agent {name} has two tools of the same name.")
        if self.has_plan and PLAN_TOOL in {*self.tools, *self.team}:
            raise MisuseError(f"Agent {name} has a plan, which brings a tool `{PLAN_TOOL}`; give its own another name.")

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    @cached_property
    def model(self) -> Model:
        return resolve(self._model)

    @cached_property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        own = (ToolSpec(tool.name, tool.description, as_json(tool.schema)) for tool in self.tools.values())
        others = (ToolSpec(name, _about(program), _DELEGATION) for name, program in self.team.items())
        return (*own, *others, *((PLAN_SPEC,) if self.has_plan else ()))

    @cached_property
    def output_type(self) -> pydantic.TypeAdapter[Any] | None:
        if self.output is None:
            return None
        import pydantic

        return pydantic.TypeAdapter(self.output)

    @cached_property
    def output_schema(self) -> Json | None:
        return None if self.output_type is None else as_json(self.output_type.json_schema())

    # -- what a driver asks for

    async def play(self, driver: Driver) -> bytes | None:
        return await Play(self, driver).run()

    def undo(self, effect: Effect, call: UndoneCall, driver: Driver) -> Performance:
        borrowed = (undo for source in self.sources if (undo := source.undo_at(effect.undo)) is not None)
        with lending(driver.stage):
            return undo_call(driver.stage, next(borrowed, None) or self.tools.undo_at(effect.undo, call.name), call)

    def check(self, call: UndoneCall, driver: Driver) -> Performance | None:
        verify = verify_of(self.tools, self.sources, call.name)
        with lending(driver.stage):
            return None if verify is None else check_call(driver.stage, verify, call)

    def answer(self, question: str, driver: Driver) -> Perform:
        return answer_with(self.model, question, driver, instructions=self.instructions, settings=self.settings)


def _about(program: Program) -> str:
    return getattr(program, "description", "") or f"Hands a task to the agent {program.name} and waits for its result."
