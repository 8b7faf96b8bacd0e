"""The base of all settings: frozen, checked as a whole.

They come from code, the environment, TOML or defaults.

None means "not set" at every stage and never hides a value of a later one.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from queue_core.errors import ConfigurationError
from queue_core.runtime.arguments import not_allowed, of_kind
from queue_core.runtime.deprecation import deprecated
from queue_core.runtime.shown import shown

C = TypeVar("C", bound="Settings")

_NOTHING: Mapping[str, object] = MappingProxyType({})


class Settings(BaseModel):
    """Settings of one kind.

    Raises ConfigurationError when built from a wrong value, an unknown key or an impossible
    combination.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        allow_inf_nan=False,
        validate_default=True,
    )
    environment_prefix: ClassVar[str]
    toml_table: ClassVar[str]
    sections: ClassVar[Mapping[str, type[Settings]]] = {}
    """Settings within these with their own variables and TOML table, since others share them."""

    @classmethod
    def _from_environment(
        cls, prefix: str | None = None, overrides: Mapping[str, object] = _NOTHING
    ) -> Self:
        return cls._build(
            _Source.of_environment(cls, prefix),
            overrides,
            lambda section: section._from_environment(),  # noqa: SLF001 -- of this class
        )

    @classmethod
    def _from_toml(
        cls,
        path: str | Path,
        table: str | None = None,
        prefix: str | None = None,
        overrides: Mapping[str, object] = _NOTHING,
    ) -> Self:
        of_kind(path, str, Path, key="path")
        of_kind(table or "", str, key="table")
        source = _Source.of_toml(Path(path), table or cls.toml_table)
        if prefix != "":
            source = source.under(_Source.of_environment(cls, prefix))
        none = "" if prefix == "" else None
        return cls._build(
            source,
            overrides,
            lambda section: section._from_toml(path, prefix=none),  # noqa: SLF001 -- of this class
        )

    def _with_changes(self, changes: Mapping[str, object]) -> Self:
        """A checked copy with `changes`; derived defaults are derived anew."""
        kept = {key: getattr(self, key) for key in self.model_fields_set}
        return type(self).model_validate({**kept, **changes})

    def _become(self, other: Self) -> None:
        """Take the values of `other`, for everybody who holds this object.

        For the owner of a configuration that nobody else was given: to users it is frozen.
        """
        self.__dict__.update(other.__dict__)
        self.model_fields_set.clear()
        self.model_fields_set.update(other.model_fields_set)

    @classmethod
    def _build(
        cls,
        source: _Source,
        overrides: Mapping[str, object],
        read: Callable[[type[Settings]], Settings],
    ) -> Self:
        given = {key: value for key, value in overrides.items() if value is not None}
        for key, section in cls.sections.items():
            if key in source.values:
                raise ConfigurationError(
                    f"{cls.__name__}: {key} can't be set here. Its settings come from variables "
                    f"{section.environment_prefix}... and from the TOML table "
                    f"[{section.toml_table}], for all that share them. It comes from "
                    f"{source.origins[key]}.",
                    key=key,
                    value=source.values[key],
                    source=source.origins[key],
                )
            if key not in given:
                given[key] = read(section)
        origins = {key: origin for key, origin in source.origins.items() if key not in given}
        return cls.model_validate({**source.values, **given}, context=origins)

    def _check(self) -> None:
        """Raise ConfigurationError for values that are impossible together."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        # Python counts with truth values, so pydantic takes True for 1.
        kind = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and {int, float} & {kind, *get_args(kind)}:
            raise ValueError("a number, not a truth value")
        return value

    @model_validator(mode="after")
    def _possible(self) -> Self:
        # Defined above _explain, and here, which otherwise would not see its errors.
        self._check()
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _explain(
        cls, values: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        origins: dict[str, str] = info.context or {}
        if isinstance(values, dict):
            values = {key: value for key, value in values.items() if value is not None}
        try:
            return handler(cls._moved(values) if isinstance(values, dict) else values)
        except ValidationError as error:
            raise _explained(cls, error, origins) from error
        except ConfigurationError as error:
            raise _located(
                cls, str(error), error.key or cls.__name__, error.value, origins
            ) from error

    @classmethod
    def _moved(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Move keys to the section that holds them now; they win over those of a given section."""
        for name, section in cls.sections.items():
            old = {key: value for key, value in values.items() if key in section.model_fields}
            given = values.get(name)
            if not old or not (given is None or isinstance(given, section)):
                continue
            for key in old:
                deprecated(key, f"{name}={section.__name__}({key}=...)")
            kept = {key: value for key, value in values.items() if key not in old}
            node = section() if given is None else given
            values = {**kept, name: node._with_changes(old)}  # noqa: SLF001 -- of this class
        return values


class _Source:
    """Values with the place that each came from."""

    def __init__(self, values: dict[str, Any], origins: dict[str, str]) -> None:
        self.values = values
        self.origins = origins

    def under(self, stronger: _Source) -> _Source:
        return _Source({**self.values, **stronger.values}, {**self.origins, **stronger.origins})

    @classmethod
    def of_environment(cls, config: type[Settings], prefix: str | None) -> _Source:
        prefix = config.environment_prefix if prefix is None else prefix
        of_kind(prefix, str, key="prefix")
        values: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for variable, text in os.environ.items():
            # An empty variable is how shells and containers say "not set".
            if variable.startswith(prefix) and text:
                key = variable.removeprefix(prefix).lower()
                values[key] = _from_json(variable, text) if key == "retry" else text
                origins[key] = f"environment variable {variable}"
        return cls(values, origins)

    @classmethod
    def of_toml(cls, path: Path, table: str) -> _Source:
        try:
            values: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"The configuration file {path} can't be read: {error}.", source=str(path)
            ) from error
        for part in table.split("."):
            values = values.get(part, {})
            if not isinstance(values, dict):
                raise ConfigurationError(
                    f"{table} in {path} is {shown(values)}, not a table.",
                    key=table,
                    value=values,
                    source=str(path),
                )
        return cls(values, dict.fromkeys(values, f"table [{table}] of {path}"))


def _from_json(variable: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{variable}={text!r} is not JSON: {error}. "
            'Allowed: a table such as {"kind": "exponential", "max_retries": 10}.',
            key="retry",
            value=text,
            source=variable,
        ) from error


def configured(kind: type[C], config: C | None, settings: Mapping[str, object]) -> C:
    """The configuration of a bus or service, given as an object or as keys, which win.

    Always a new object: two buses may be given the same, and one be reconfigured.
    """
    config = kind() if config is None else config
    of_kind(config, kind, key="config")
    return config._with_changes(settings)  # noqa: SLF001 -- of this class


def combination(key: str, value: object, allowed: str) -> ConfigurationError:
    """The error of `Settings._check` for a value that others forbid."""
    return not_allowed(key, value, allowed)


def _explained(
    config: type[Settings], error: ValidationError, origins: Mapping[str, str]
) -> ConfigurationError:
    """One error for the first fault; pydantic's own text, with all of them, stays its cause."""
    fault = error.errors(include_url=False)[0]
    key, value = str(fault["loc"][0] if fault["loc"] else config.__name__), fault["input"]
    if fault["type"] == "extra_forbidden":
        message = f"{key}={shown(value)} is no key{_near(config, key)}"
    elif fault["type"] == "missing":
        message = f"{key} is missing and has no default."
    else:
        message = (
            f"{key}={shown(value)} is not allowed. Allowed: {_NOT_THE_RULE.sub('', fault['msg'])}."
        )
    return _located(config, message, key, value, origins)


def _near(config: type[Settings], key: str) -> str:
    near = difflib.get_close_matches(key, config.model_fields, n=1)
    return f"; did you mean {near[0]}?" if near else "."


def _located(
    config: type[Settings], message: str, key: str, value: object, origins: Mapping[str, str]
) -> ConfigurationError:
    source = origins.get(key.partition(".")[0])
    return ConfigurationError(
        f"{config.__name__}: {message}" + (f" It comes from {source}." if source else ""),
        key=key,
        value=value,
        source=source,
    )


# The beginning of pydantic's messages, before the words that tell the allowed values.
_NOT_THE_RULE = re.compile(r"^(Input should be |Value error, )")
