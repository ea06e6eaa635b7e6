"""Which options the reducer of a parameter gets."""

from __future__ import annotations

import fnmatch
import warnings
from numbers import Integral
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import torch

from .._comm import Comm
from .._reducer import method
from ._checks import agree, check_method, check_options, try_options

Rule = Union[str, Mapping[str, Any]]
Match = Union[str, Callable[[str, torch.Tensor], bool]]
Rules = Union[Mapping[str, Rule], Sequence[tuple[Match, Rule]]]

FUSED = -2  # in place of the number of a rule: small parameters, summed densely
_WARMUP_STAGES = 4  # the library's own, where warmup= does not give others


def rule_options(rule: Rule) -> dict[str, Any]:
    """A method's name, or options of which ``algorithm`` may be such a name."""
    options = (
        {"algorithm": rule}
        if isinstance(rule, str)
        else {key: value for key, value in rule.items() if value is not None}
    )
    if "algorithm" in options:
        check_method(options["algorithm"])
        options = {**method(options.pop("algorithm")), **options}
    return options


class Chooser:
    """Options of a parameter: the general ones, changed by the first rule that fits its name. Those
    of fewer than small values that no rule is for are dense."""

    def __init__(self, general: Mapping[str, Any], rules: Optional[Rules], small: int = 0) -> None:
        self.general = rule_options(general)
        self.small = small
        pairs = rules.items() if isinstance(rules, Mapping) else (rules or ())
        self.rules: list[tuple[Match, dict[str, Any]]] = [
            (match, rule_options(rule)) for match, rule in pairs
        ]

    @classmethod
    def agreed(
        cls,
        comm: Comm,
        general: Mapping[str, Any],
        rules: Optional[Rules],
        small: int,
        others: Sequence[str],
        checks: Callable[[], Any],
    ) -> "Chooser":
        """One whose options are right and the same on all ranks. ``others``: arguments of the
        caller that are none of the reducers'; ``checks``: what else the caller has to check.
        Collective."""

        def check() -> Chooser:
            checks()
            check_options(general, others)
            if not isinstance(small, Integral) or small < 0:
                raise ValueError(f"small = {small!r}: a number of values is needed")
            chooser = cls(general, rules, small)
            for number in range(-1, len(chooser.rules)):
                check_options(chooser.options(number))
            return chooser

        made = agree(comm, check, cls._description)
        for options in made.all_options():
            try_options(comm, options)
        return made

    def _description(self) -> dict[str, str]:
        """What ranks must have alike. Functions in place of names are not compared."""
        described = {name: repr(value) for name, value in self.general.items()}
        for i, (match, options) in enumerate(self.rules):
            described[
                f"rule {i}"
            ] = f"{match if isinstance(match, str) else ''} {sorted(options.items())}"
        return {**described, "small": repr(self.small)}

    def shown(self) -> dict[str, Any]:
        """What was asked for."""
        given = {name: value for name, value in self.general.items() if value not in (None, 0)}
        small = {"small": self.small} if self.small else {}
        return {**given, **small, **({"rules": len(self.rules)} if self.rules else {})}

    def warn_of_unmatched(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Rules that are for none of the parameters are likely a mistake."""
        matched = {self.number(name, p) for name, p in parameters.items()}
        for i, (match, _) in enumerate(self.rules):
            if i not in matched:
                warnings.warn(
                    f"rule {match!r} is for no parameter: it fits none, or rules before it take "
                    "them all. Parameters: "
                    f"{', '.join(list(parameters)[:8])}{', ...' if len(parameters) > 8 else ''}",
                    stacklevel=3,
                )

    def is_sparse(self) -> bool:
        """Whether parameters without a rule of their own are sent in part."""
        return self.general.get("algorithm") != "dense" and self.general.get("density") != 1

    def number(self, name: str, parameter: torch.Tensor) -> int:
        """The number of the rule; FUSED, or -1."""
        for i, (match, _) in enumerate(self.rules):
            if (
                fnmatch.fnmatchcase(name, match)
                if isinstance(match, str)
                else match(name, parameter)
            ):
                return i
        return FUSED if parameter.numel() < self.small else -1

    def dense_options(self) -> dict[str, Any]:
        return {
            "algorithm": "dense",
            **{
                name: self.general[name]
                for name in ("average", "clip", "nonfinite")
                if name in self.general
            },
        }

    def all_options(self) -> list[dict[str, Any]]:
        """That reducers may be made with."""
        numbers = range(-1, len(self.rules))
        return [self.dense_options(), *(self.options(number) for number in numbers)]

    def warmup_steps(self, number: int) -> int:
        """How long the warm-up of a rule takes."""
        options = self.options(number)
        given = options.get("warmup")
        stages = _WARMUP_STAGES if given is None else len(given)
        return stages * int(options.get("warmup_steps") or 0)

    def options(self, number: int, warm: bool = False) -> dict[str, Any]:
        """warm: the warm-up is over."""
        options = self._options(number)
        return {k: v for k, v in options.items() if not (warm and k.startswith("warmup"))}

    def _options(self, number: int) -> dict[str, Any]:
        if number == FUSED:
            return self.dense_options()
        if number < 0:
            return dict(self.general)
        changed = self.rules[number][1]
        # Another algorithm does not inherit what was meant for the general one.
        specific = ("select", "value_bits", "value_scope") if "algorithm" in changed else ()
        return {**{k: v for k, v in self.general.items() if k not in specific}, **changed}
