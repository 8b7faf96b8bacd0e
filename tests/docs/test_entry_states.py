"""The state diagram in the documentation, and the statements, follow the one transition table."""

from __future__ import annotations

from pathlib import Path

from queue_core.model.states import TRANSITIONS, State

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "entry-states.md"


def test_the_page_shows_the_diagram_of_the_transition_table() -> None:
    assert f"```mermaid\n{_diagram()}```" in PAGE.read_text("utf-8")


def test_every_state_has_its_transitions_and_terminal_states_have_none() -> None:
    assert set(TRANSITIONS) == set(State)
    assert all(not TRANSITIONS[state] for state in State if state.terminal)


def _diagram() -> str:
    """`TRANSITIONS` as a Mermaid state diagram."""
    arrows = [
        f"    [*] --> {State.AVAILABLE}: post",
        f"    [*] --> {State.IN_PROCESSING}: post, born claimed",
        f"    [*] --> {State.WAITING}: post, behind another of its order key or after others",
    ]
    for state, following in TRANSITIONS.items():
        arrows += [f"    {state} --> {after}: {cause}" for after, cause in following.items()]
    arrows += [
        f"    {state} --> [*]" for state in State if state.terminal and state is not State.REAPED
    ]
    arrows.append(f"    {State.REAPED} --> {State.AVAILABLE}: its copy, with a new id")
    return "\n".join(["stateDiagram-v2", *arrows, ""])
