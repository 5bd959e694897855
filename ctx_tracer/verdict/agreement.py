"""What ranks must agree on without having met: facts of the same tensor (CT201), and how they are set up (CT305)."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ctx_tracer.model import Finding, Region
from ctx_tracer.verdict.sides import minority
from ctx_tracer.verdict.speaker import First, Speaker, digest
from ctx_tracer.verdict.words import ranks_in_words

_MOST_SETTINGS = 4  # named in the sentence; the finding has them all
# Of a distributed tensor all of these are the job's; of a dense one the shape may be a hand-made shard's.
_OF_A_MESH = ("placements", "process_mesh", "dtype", "shape")


def facts_findings(speakers: Sequence[Speaker]) -> list[Finding]:
    """CT201: the first capture of a path, slot by slot, over the ranks that hold the same tensors."""
    paths: dict[tuple[str, str], dict[int, tuple[First, Speaker]]] = {}
    for speaker in speakers:
        for key, first in speaker.first_captures().items():
            paths.setdefault(key, {})[speaker.rank] = (first, speaker)
    found = []
    for (name, mode), by_rank in paths.items():
        if len({first.digest for first, _ in by_rank.values()}) == 1:
            continue
        for index in range(max(len(first.slots) for first, _ in by_rank.values())):
            slot = {
                rank: (first.slots[index], speaker, first.source)
                for rank, (first, speaker) in by_rank.items()
                if index < len(first.slots)
            }
            if len({digest(facts) for facts, _, _ in slot.values()}) > 1:
                finding = _slot(Region(name, 0, None, mode), index, slot)
                found += [finding] if finding is not None else []
    return found


def _place(speaker: Speaker) -> dict[str, int]:
    """Its coordinates along the axes of fleet's topology; empty without fleet."""
    known = speaker.definitions("topology")
    return dict(known[-1].data.get("axes") or {}) if known else {}


def _slot(
    region: Region, index: int, by_rank: Mapping[int, tuple[Mapping[str, Any], Speaker, str | None]]
) -> Finding | None:
    places = {rank: _place(speaker) for rank, (_, speaker, _) in by_rank.items()}
    comparable = _comparable({rank: facts for rank, (facts, _, _) in by_rank.items()}, places)
    if len(comparable) < 2:
        return None
    fields = _OF_A_MESH if any("process_mesh" in facts for facts in comparable.values()) else ("dtype",)
    said: dict[Hashable, list[int]] = {}
    for rank, facts in sorted(comparable.items()):
        said.setdefault(tuple(plain(facts.get(field)) for field in fields), []).append(rank)
    if len(said) < 2:
        return None
    odd = minority(said)
    ranks = odd or sorted(comparable)
    majority = comparable[next(rank for rank in sorted(comparable) if rank not in odd)] if odd else None
    one = comparable[ranks[0]]
    other = majority if majority is not None else comparable[ranks[-1]]
    differs = tuple(field for field in fields if plain(one.get(field)) != plain(other.get(field)))
    what = one.get("name") or f"slot {index} of {region.name}"
    values = " and ".join(
        f"{ranks_in_words(members)} {'has' if len(members) == 1 else 'have'} "
        f"{', '.join(_word(comparable[members[0]].get(field)) for field in differs)}"
        for members in list(said.values())[:3]
    )
    source = by_rank[ranks[0]][2]
    return Finding(
        "CT201",
        ranks=tuple(ranks),
        processes=tuple(by_rank[rank][1].identity.pid for rank in ranks),
        region=Region(region.name, 0, source, region.mode),
        slot=index,
        tensor={"name": one.get("name"), "layer": one.get("layer"), "role": one.get("role")},
        first_step=0,
        differs=differs,
        captured=dict(one),
        message=f"Ranks differ in {' and '.join(differs)} of {what}: {values}.",
        detail={
            "majority": dict(majority) if majority is not None else None,
            "ranks": [{"ranks": members, **dict(comparable[members[0]])} for members in said.values()],
        },
    )


def _comparable(
    facts: Mapping[int, Mapping[str, Any]], places: Mapping[int, Mapping[str, int]]
) -> Mapping[int, Mapping[str, Any]]:
    """The ranks whose tensors must be one and the same.

    A distributed tensor's are those of its mesh. A dense parameter is the same one only where its name and its shape
    and its stage are; of other dense tensors nothing is known: other lengths, stages and experts are right.
    """
    meshes = {rank: _ranks_of(one["process_mesh"]) for rank, one in facts.items() if one.get("process_mesh")}
    if meshes:
        members = {rank for mesh in meshes.values() for rank in mesh if rank in facts}
        together = {rank for rank in members if rank in meshes and rank in meshes[rank]}
        first = meshes[min(together)] if together else frozenset()
        return {rank: facts[rank] for rank in together if rank in first or meshes[rank] & first}
    named: dict[Hashable, dict[int, Mapping[str, Any]]] = {}
    for rank, one in facts.items():
        if one.get("role") == "parameter" or one.get("name"):
            stage = places[rank].get("pp")
            named.setdefault((one.get("name"), stage, plain(one.get("shape"))), {})[rank] = one
    return max(named.values(), key=len, default={})


@lru_cache(maxsize=1024)
def _ranks_of(mesh: str) -> frozenset[int]:
    """Of `[[0, 1], [2, 3]] dp, mp` the ranks."""
    return frozenset(int(number) for number in re.findall(r"\d+", mesh[: mesh.rfind("]") + 1]))


def configuration_findings(speakers: Sequence[Speaker]) -> list[Finding]:
    """CT305: settings that differ between ranks of one job."""
    # Told when a process was first observed, and again when its training began: compared with the same of the others.
    told = {s.rank: [flat(d.data) for d in s.definitions("environment")] for s in speakers}
    differing: dict[str, dict[Hashable, list[int]]] = {}
    for when in range(max(map(len, told.values()), default=0)):
        settings = {rank: one[when] for rank, one in sorted(told.items()) if len(one) > when}
        for name in sorted({name for one in settings.values() for name in one}):
            said: dict[Hashable, list[int]] = {}
            for rank, one in settings.items():
                said.setdefault(plain(one.get(name)), []).append(rank)
            if len(said) > 1:
                differing[name] = said
    if not differing:
        return []
    odd = sorted({rank for said in differing.values() for rank in minority(said)})
    ranks = odd or sorted({rank for said in differing.values() for of in said.values() for rank in of})
    words = [
        f"{name} is {' and '.join(f'{_word(value)} on {ranks_in_words(of)}' for value, of in list(said.items())[:3])}"
        for name, said in list(differing.items())[:_MOST_SETTINGS]
    ]
    more = f"; and {len(differing) - _MOST_SETTINGS} more" if len(differing) > _MOST_SETTINGS else ""
    return [
        Finding(
            "CT305",
            ranks=tuple(ranks),
            processes=tuple(s.identity.pid for s in speakers if s.rank in ranks),
            first_step=0,
            differs=tuple(list(differing)[:32]),
            message=f"Ranks are set up differently: {'; '.join(words)}{more}.",
            detail={
                "settings": {
                    name: [{"value": value, "ranks": of} for value, of in said.items()]
                    for name, said in list(differing.items())[:32]
                }
            },
        )
    ]


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found


def plain(value: Any) -> Hashable:
    """A JSON value that can be compared and counted."""
    return tuple(map(plain, value)) if isinstance(value, list) else value


def _word(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(str, value))}]"
    return "not set" if value is None else str(value)
