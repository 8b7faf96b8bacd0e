"""What callers compile: the messages and methods of both generations, written down once more.

The service's own tables are not read for it, so a wrong number in one of them does not pass.
"""

from __future__ import annotations

ACTIONS = "enum ActionType { CLAIM=0; DELETE=1; CHANGE=2; DEPEND=3; DETAIL=4; INSERT=5; READ=6; }"

API = f"""
syntax = "proto3";
package api;
import "google/protobuf/struct.proto";

service EntroQ {{
  rpc TryClaim(ClaimRequest) returns (ClaimResponse);
  rpc Claim(ClaimRequest) returns (ClaimResponse);
  rpc Modify(ModifyRequest) returns (ModifyResponse);
  rpc Tasks(TasksRequest) returns (TasksResponse);
  rpc StreamTasks(TasksRequest) returns (stream TasksResponse);
  rpc Queues(QueuesRequest) returns (QueuesResponse);
  rpc QueueStats(QueuesRequest) returns (QueuesResponse);
  rpc Time(TimeRequest) returns (TimeResponse);
  rpc Docs(DocsRequest) returns (DocsResponse);
  rpc ClaimDocs(ClaimDocsRequest) returns (ClaimDocsResponse);
  rpc NamespaceStats(NamespacesRequest) returns (NamespacesResponse);
}}
{ACTIONS}
message TaskID {{ string id=1; int32 version=2; string queue=3; }}
message TaskData {{ string queue=1; int64 at_ms=2; google.protobuf.Value value=3; string id=4;
  int32 attempt=5; string err=6; }}
message TaskChange {{ TaskID old_id=1; TaskData new_data=2; }}
message Task {{ string queue=1; string id=2; int32 version=3; int64 at_ms=4; string claimant_id=5;
  google.protobuf.Value value=6; int64 created_ms=7; int64 modified_ms=8; int32 claims=9;
  int32 attempt=10; string err=11; }}
message QueueStats {{ string name=1; int32 num_tasks=2; int32 num_claimed=3; int32 num_available=4;
  int32 max_claims=5; int32 num_future=6; }}
message ClaimRequest {{ string claimant_id=1; repeated string queues=2; int64 duration_ms=3;
  int64 poll_ms=4; }}
message ClaimResponse {{ Task task=1; }}
message DocID {{ string namespace=1; string id=2; int32 version=3; }}
message DocData {{ string namespace=1; string id=2; string key=3; string secondary_key=4;
  google.protobuf.Value content=5; int64 created_ms=6; int64 modified_ms=7; int64 at_ms=8; }}
message DocChange {{ DocID old_id=1; DocData new_data=2; }}
message Doc {{ string namespace=1; string id=2; int32 version=3; string claimant=4; int64 at_ms=5;
  string key=6; string secondary_key=7; google.protobuf.Value content=8; int64 created_ms=9;
  int64 modified_ms=10; }}
message DocQuery {{ string namespace=1; string key_start=2; string key_end=3; int32 limit=4;
  bool omit_values=5; repeated string ids=6; }}
message DocClaim {{ string namespace=1; string claimant=2; string key=3; int64 duration_ms=4; }}
message DocsRequest {{ DocQuery query=1; }}
message DocsResponse {{ repeated Doc docs=1; }}
message ClaimDocsRequest {{ DocClaim claim_query=1; }}
message ClaimDocsResponse {{ repeated Doc docs=1; }}
message NamespaceStat {{ string name=1; int32 num_docs=2; int32 num_claimed=3; }}
message NamespacesRequest {{ repeated string match_prefix=1; repeated string match_exact=2;
  int32 limit=3; }}
message NamespacesResponse {{ repeated NamespaceStat namespaces=1; }}
message ModifyRequest {{ string claimant_id=1; repeated TaskData inserts=2;
  repeated TaskChange changes=3; repeated TaskID deletes=4; repeated TaskID depends=5;
  repeated DocData doc_inserts=6; repeated DocChange doc_changes=7; repeated DocID doc_deletes=8;
  repeated DocID doc_depends=9; }}
message ModifyResponse {{ repeated Task inserted=1; repeated Task changed=2;
  repeated Doc inserted_docs=3; repeated Doc changed_docs=4; }}
message ModifyDep {{ ActionType type=1; TaskID id=2; string msg=3; DocID doc_id=4; }}
message AuthzDep {{ repeated ActionType actions=1; string exact=2; string prefix=3; string msg=4; }}
message TasksRequest {{ string claimant_id=1; string queue=2; int32 limit=3;
  repeated string task_id=4; bool omit_values=5; }}
message TasksResponse {{ repeated Task tasks=1; }}
message QueuesRequest {{ repeated string match_prefix=1; repeated string match_exact=2;
  int32 limit=3; }}
message QueuesResponse {{ repeated QueueStats queues=1; }}
message TimeRequest {{}}
message TimeResponse {{ int64 time_ms=1; }}
"""

LEGACY = f"""
syntax = "proto3";
package proto;

service EntroQ {{
  rpc TryClaim(ClaimRequest) returns (ClaimResponse);
  rpc Claim(ClaimRequest) returns (ClaimResponse);
  rpc Modify(ModifyRequest) returns (ModifyResponse);
  rpc Tasks(TasksRequest) returns (TasksResponse);
  rpc StreamTasks(TasksRequest) returns (stream TasksResponse);
  rpc Queues(QueuesRequest) returns (QueuesResponse);
  rpc QueueStats(QueuesRequest) returns (QueuesResponse);
  rpc Time(TimeRequest) returns (TimeResponse);
}}
{ACTIONS}
message TaskID {{ string id=1; int32 version=2; string queue=3; }}
message TaskData {{ string queue=1; int64 at_ms=2; bytes value=3; string id=4; int32 attempt=5;
  string err=6; }}
message TaskChange {{ TaskID old_id=1; TaskData new_data=2; }}
message Task {{ string queue=1; string id=2; int32 version=3; int64 at_ms=4; string claimant_id=5;
  bytes value=6; int64 created_ms=7; int64 modified_ms=8; int32 claims=9; int32 attempt=10;
  string err=11; }}
message QueueStats {{ string name=1; int32 num_tasks=2; int32 num_claimed=3; int32 num_available=4;
  int32 max_claims=5; }}
message ClaimRequest {{ string claimant_id=1; repeated string queues=2; int64 duration_ms=3;
  int64 poll_ms=4; }}
message ClaimResponse {{ Task task=1; }}
message ModifyRequest {{ string claimant_id=1; repeated TaskData inserts=2;
  repeated TaskChange changes=3; repeated TaskID deletes=4; repeated TaskID depends=5; }}
message ModifyResponse {{ repeated Task inserted=1; repeated Task changed=2; }}
message ModifyDep {{ ActionType type=1; TaskID id=2; string msg=3; }}
message AuthzDep {{ repeated ActionType actions=1; string exact=2; string prefix=3; string msg=4; }}
message TasksRequest {{ string claimant_id=1; string queue=2; int32 limit=3;
  repeated string task_id=4; bool omit_values=5; }}
message TasksResponse {{ repeated Task tasks=1; }}
message QueuesRequest {{ repeated string match_prefix=1; repeated string match_exact=2;
  int32 limit=3; }}
message QueuesResponse {{ repeated QueueStats queues=1; }}
message TimeRequest {{}}
message TimeResponse {{ int64 time_ms=1; }}
"""

STATUS = """
syntax = "proto3";
package google.rpc;
import "google/protobuf/any.proto";

message Status { int32 code=1; string message=2; repeated google.protobuf.Any details=3; }
"""
