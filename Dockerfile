# One image for fronts and workers; docs/howto/scale-out.md says how they are put together.
#
#   docker build -t checkrein .
#
# An image of yours begins with it and adds the agents: FROM checkrein, COPY agent.py .
FROM python:3.11-slim

RUN useradd --create-home --uid 1000 checkrein \
    && mkdir -p /srv/agents /run/checkrein \
    && chown checkrein /srv/agents /run/checkrein

COPY pyproject.toml constraints.txt README.md LICENSE /opt/checkrein/
COPY src /opt/checkrein/src
RUN pip install --no-cache-dir -c /opt/checkrein/constraints.txt '/opt/checkrein[google-adk,langgraph,mcp,openai-agents,postgres,providers,pydantic-ai,temporal]'

USER 1000
WORKDIR /srv/agents
EXPOSE 8420
STOPSIGNAL SIGTERM

# A worker touches the file of `--health-file /run/checkrein/healthy` while all is well; a front answers.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD \
    find /run/checkrein/healthy -newermt '-30 seconds' 2> /dev/null | grep -q . \
    || python -c "import urllib.request as request; request.urlopen('http://127.0.0.1:8420/healthz', timeout=3)"

ENTRYPOINT ["checkrein"]
CMD ["--help"]
