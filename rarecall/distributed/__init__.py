"""One memory for all ranks of a training, on torch.distributed: `shard`, `replicate`, and `asynchronous` replicas."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from rarecall.distributed.asynchronous import asynchronous
from rarecall.distributed.backends import JointBackend, ReplicatedBackend, ShardedBackend
from rarecall.distributed.joint import JointMemory, Part, empty_like
from rarecall.distributed.owner import Conflicts
from rarecall.distributed.team import Team
from rarecall.memory import Memory
from rarecall.slots import FIELDS

__all__ = ["Conflicts", "JointMemory", "asynchronous", "replicate", "shard"]


def shard(memory: Memory, mesh: DeviceMesh, *, timeout: timedelta | None = None) -> JointMemory:
    """Spread the slots of a memory over the ranks of a mesh. All ranks call it, with memories that hold the same.

    Args:
        memory: on the mesh's type of device, or on "meta": then it is empty, and was never whole in one place. It is
            not changed.
        mesh: of one dimension; of a larger one, choose it: mesh["name"].
        timeout: within which a rank that died or hangs is an error on the others; the mesh's own by default.

    Example, in a script that torchrun starts:
        >>> mesh = init_device_mesh("cpu", (dist.get_world_size(),))     # doctest: +SKIP
        >>> memory = shard(Memory(key_size=256, capacity=10**6), mesh)   # doctest: +SKIP
        >>> recall = memory(query)                                       # doctest: +SKIP
    """
    if memory.eviction != "age":
        raise ValueError(
            f"shard got a memory with eviction={memory.eviction!r}; slots on several ranks make room by age only. Keep "
            "the whole memory on each rank: replicate(memory, mesh)."
        )
    return _make("shard", memory, mesh, timeout, ShardedBackend)


def replicate(memory: Memory, mesh: DeviceMesh, *, timeout: timedelta | None = None) -> JointMemory:
    """Keep a copy of a memory on every rank of a mesh, all equal: the layout for small memories.

    Recalls are each rank's own and send nothing; loss and update are made by all ranks, as those of `shard`, and
    examples are sent to all. It takes the same arguments.
    """
    return _make("replicate", memory, mesh, timeout, ReplicatedBackend)


def _make(
    call: str, memory: Memory, mesh: DeviceMesh, timeout: timedelta | None, kind: type[JointBackend]
) -> JointMemory:
    if mesh.ndim != 1:
        raise ValueError(
            f"{call} got a mesh of {mesh.ndim} dimensions {mesh.mesh_dim_names}; expected one. Choose it: mesh['name']."
        )
    if mesh.get_coordinate() is None:
        raise ValueError(f"{call} got a mesh that this rank, {dist.get_rank()}, is not in.")
    _agree(call, memory, mesh)
    joint = kind(Team(mesh, timeout), memory.capacity)
    part = empty_like(
        memory, Part, max(joint.count, 1), joint.team.device
    )  # a rank without slots has one, never filled
    if not memory.keys.is_meta:
        joint.filled = len(memory)
        mine = slice(joint.first, joint.first + joint.count)
        with torch.no_grad():
            part.now.copy_(memory.now)
            for name in FIELDS:
                part._buffers[name][: joint.count] = memory._buffers[name][mine]
    return JointMemory(part, joint)


def _agree(call: str, memory: Memory, mesh: DeviceMesh) -> None:
    """Raise on every rank where one of them cannot, or where they are told different things."""
    try:
        said: dict[str, Any] = _describe(call, memory, mesh)
    except (TypeError, ValueError) as error:
        said = {"error": error}
    told: list[Any] = [said] * mesh.size()
    if mesh.device_type == "cpu" or torch.get_device_module(mesh.device_type).is_available():
        dist.all_gather_object(told, said, group=mesh.get_group())
    if "error" in said:
        raise said["error"]
    for rank, its in enumerate(told):
        if "error" in its:
            raise ValueError(f"{call} is refused by rank {rank}: {its['error']}")
    for name in said:
        heard = [its[name] for its in told]
        if any(each != heard[0] for each in heard):
            listed = "; ".join(f"rank {rank} has {each}" for rank, each in enumerate(heard))
            raise ValueError(f"{call}: the ranks disagree about {name}: {listed}. Give all of them the same.")


def _describe(call: str, memory: Memory, mesh: DeviceMesh) -> dict[str, Any]:
    """What all ranks must have alike."""
    if isinstance(memory, JointMemory):
        raise ValueError(f"{call} got a memory that is distributed already; expected an ordinary one.")
    if not isinstance(memory, Memory):
        raise TypeError(f"{call} got {type(memory).__name__}; expected a Memory.")
    device = memory._buffers["keys"].device.type
    if device not in (mesh.device_type, "meta"):
        raise ValueError(
            f"{call} got a memory on {device} and a mesh of {mesh.device_type}; expected both on the same type of "
            f"device. Move the memory: memory.to({mesh.device_type!r}), or make a mesh of {device}."
        )
    about: dict[str, Any] = {"the call": call, **memory._settings(), "the type of keys": str(memory.keys.dtype)}
    about["the search"] = f"{type(memory.search).__name__} {memory.search.settings()}"
    if device != "meta":
        sums = {name: memory._buffers[name].sum(dtype=torch.float64).item() for name in FIELDS}
        about["what the memory holds"] = {"updates": int(memory.now)} | sums
    return about
