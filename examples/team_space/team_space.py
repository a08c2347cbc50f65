"""Gives every TeamSpace a Namespace with a quota and a role binding for each member."""

from kueuelib.runtime import (
    ConditionedStatus,
    Context,
    FieldError,
    KubeObject,
    Operator,
    Struct,
    crd,
    field,
    frozen,
    kinds,
    wire,
)

QUOTAS, BINDINGS, RBAC = kinds.RESOURCE_QUOTAS, kinds.ROLE_BINDINGS, kinds.ROLE_BINDINGS.group
BIND = {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["bind"]}
app = Operator("team-spaces", rules=[{**BIND, "resourceNames": ["edit"]}])


@frozen
class Spec(Struct):
    """Who works in the space, and how much it may use."""

    members: tuple[str, ...] = ()
    cpu: int = field(default=4, metadata=wire(minimum=1, maximum=100))
    owner: str = ""


@frozen
class Status(ConditionedStatus):
    """What was done."""

    members: int = field(default=0, metadata=wire(column="Members"))


@crd("example.com", "v1", plural="teamspaces", namespaced=False)
@frozen
class TeamSpace(KubeObject):
    """A namespace for a team."""

    spec: Spec = Spec()
    status: Status = Status()


@app.reconciles(TeamSpace, owns=[kinds.NAMESPACES, QUOTAS, BINDINGS], writes=[kinds.CONFIG_MAPS])
async def team_space(space: TeamSpace, context: Context) -> None:
    """Apply the namespace, the quota and the bindings; report."""
    await context.apply(kinds.NAMESPACES.new(space.name, labels={"team": space.name}))
    hard = {"limits.cpu": str(space.spec.cpu)}
    await context.apply(QUOTAS.new("team", space.name, spec={"hard": hard}))
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"}
    for member in space.spec.members:
        user = {"apiGroup": RBAC, "kind": "User", "name": member}
        await context.apply(BINDINGS.new(member, space.name, subjects=[user], roleRef=role))
    await context.prune(BINDINGS)
    context.report(Status(members=len(space.spec.members)))
    context.condition("Ready", True, "Applied", f"namespace {space.name} is ready")


@team_space.teardown("example.com/archive")
async def archive(space: TeamSpace, context: Context) -> None:
    """Leave a note about the team that had the space."""
    data = {"owner": space.spec.owner}
    await context.apply(kinds.CONFIG_MAPS.new(f"was-{space.name}", "default", data=data))


@app.defaults(TeamSpace)
def first_member_owns(new: TeamSpace) -> TeamSpace:
    """The first member is the owner unless the spec names one."""
    owner = new.spec.owner or next(iter(new.spec.members), "")
    return new.evolve(spec=new.spec.evolve(owner=owner))


@app.validates(TeamSpace)
def owner_is_member(new: TeamSpace) -> list[FieldError]:
    """The owner must be one of the members."""
    if new.spec.owner in ("", *new.spec.members):
        return []
    return [FieldError("spec.owner", "FieldValueInvalid", f"{new.spec.owner} is not a member")]
