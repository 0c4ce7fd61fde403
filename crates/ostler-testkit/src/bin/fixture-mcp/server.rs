//! The fixture's handler for `rmcp`: one value for each session, or for each stateless request.
#![expect(deprecated, reason = "the suite asks for logging and for subscriptions of both eras")]

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use crate::era::{self, ServedEras};
use crate::request::FixtureRequest;
use crate::shared_state::{ChangedList, FixtureState};
use crate::{content, interactive_tools, logging_tools, prompts, task_tools};

/// The most resources that a session may subscribe to.
const SUBSCRIPTIONS: usize = 64;

pub(crate) struct FixtureServer {
    shared: Arc<FixtureState>,
    era: ServedEras,
    session: Mutex<FixtureSession>,
}

/// The state of a legacy session.
struct FixtureSession {
    level: LoggingLevel,
    subscriptions: BTreeSet<String>,
}

impl FixtureServer {
    pub(crate) fn new(shared: Arc<FixtureState>, era: ServedEras) -> Self {
        let session = FixtureSession { level: LoggingLevel::Info, subscriptions: BTreeSet::new() };
        Self { shared, era, session: Mutex::new(session) }
    }

    fn session(&self) -> std::sync::MutexGuard<'_, FixtureSession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_level(&self, context: &RequestContext<RoleServer>) -> Option<LoggingLevel> {
        if era::is_stateless(context.protocol_version().as_ref()) {
            return context.meta.log_level();
        }
        Some(self.session().level)
    }

    async fn call(
        &self,
        fixture_request: &FixtureRequest<'_>,
        arguments: &JsonObject,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = fixture_request.subject;
        if let Some(result) = content::static_result(name) {
            return result.map(Into::into).map_err(crate::request::internal_error);
        }
        let level = self.log_level(fixture_request.context);
        if let Some(result) = logging_tools::call(name, fixture_request.context, level).await {
            return Ok(result.into());
        }
        if let Some(result) = interactive_tools::call(fixture_request, arguments).await {
            return result;
        }
        if let Some(result) = task_tools::call(fixture_request, arguments).await {
            return result;
        }
        let argument = |key: &str| arguments.get(key).and_then(|value| value.as_str()).unwrap_or("nothing");
        match name {
            "test_error_handling" => {
                let text = "This tool intentionally returns an error for testing";
                return Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into());
            }
            "test_trigger_tool_change" => self.shared.toggle(ChangedList::Tools),
            "test_trigger_prompt_change" => self.shared.toggle(ChangedList::Prompts),
            "test_x_mcp_header" => {
                return Ok(content::text_result(format!("Region: {}", argument("region"))).into());
            }
            "json_schema_2020_12_tool" | "test_extra_tool" => {}
            _ => return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
        }
        Ok(content::text_result("Done").into())
    }
}

impl ServerHandler for FixtureServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks()
            .build();
        if self.era == ServedEras::LegacyOnly {
            // The newer revision introduced tasks.
            capabilities.extensions = None;
        }
        let version = env!("CARGO_PKG_VERSION");
        let config =
            ServerConfig::new(capabilities).with_server_info(Implementation::new("fixture-mcp", version));
        let newest = self.supported_protocol_versions().last().cloned().unwrap_or_default();
        config
            .with_protocol_version(newest)
            .with_instructions("Says what the conformance suite wants to hear.")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.era.versions()
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        if self.era == ServedEras::LegacyOnly {
            return Err(ErrorData::method_not_found::<DiscoverRequestMethod>());
        }
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), self.get_info()))
    }

    /// Sends changed lists to a legacy session. A modern client has to listen.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changes = self.shared.subscribe();
        tokio::spawn(async move {
            loop {
                let sent = match changes.recv().await {
                    Ok(ChangedList::Tools) => context.peer.notify_tool_list_changed().await,
                    Ok(ChangedList::Prompts) => context.peer.notify_prompt_list_changed().await,
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                };
                if sent.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.subscribe();
        let accepted = context.accepted().clone();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let sent = match change {
                Ok(ChangedList::Tools) if accepted.tools_list_changed == Some(true) => {
                    context.sink().notify_tool_list_changed().await
                }
                Ok(ChangedList::Prompts) if accepted.prompts_list_changed == Some(true) => {
                    context.sink().notify_prompt_list_changed().await
                }
                Ok(_) | Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return Ok(()),
            };
            if sent.is_err() {
                return Ok(());
            }
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.shared.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.catalog.tool(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let fixture_request = FixtureRequest {
            shared: &self.shared,
            context: &context,
            subject: &request.name,
            responses: request.input_responses.as_ref(),
            state: request.request_state.as_deref(),
        };
        self.call(&fixture_request, &request.arguments.unwrap_or_default()).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(self.shared.prompts()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let fixture_request = FixtureRequest {
            shared: &self.shared,
            context: &context,
            subject: &request.name,
            responses: request.input_responses.as_ref(),
            state: request.request_state.as_deref(),
        };
        prompts::get(&fixture_request, &request.arguments.unwrap_or_default()).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let begun = &request.argument.value;
        let words = ["paris", "park", "party", "test"].into_iter();
        let values = words.filter(|word| word.starts_with(begun.as_str())).map(str::to_owned).collect();
        CompletionInfo::with_all_values(values)
            .map(CompleteResult::new)
            .map_err(crate::request::internal_error)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(self.shared.catalog.resources.clone()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(self.shared.catalog.resource_templates.clone()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match content::resource(&request.uri) {
            Some(contents) => Ok(ReadResourceResult::new(vec![contents]).into()),
            None => {
                Err(ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": request.uri }))))
            }
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if era::is_stateless(context.protocol_version().as_ref()) {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        self.session().level = request.level;
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let subscriptions = &mut self.session().subscriptions;
        if subscriptions.len() >= SUBSCRIPTIONS {
            return Err(ErrorData::invalid_request("too many subscriptions", None));
        }
        subscriptions.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session().subscriptions.remove(&request.uri);
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.shared.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.cancel_task(&request.task_id)
    }
}
